"""kaas and Apache Kafka as the two sides of a measurement."""
