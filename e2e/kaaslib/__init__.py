"""What the end-to-end scenarios share: clusters, clients, faults, waiting. Python standard library only."""
