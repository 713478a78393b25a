"""What every client program is asked to do: write a topic of its own, mixed-NAME, and read each of its records once."""

from . import clients, records
from .runner import check


def read(c, writer, group, count, reader=None):
    """The records of that writer's topic, all of them and as they were written, by its own or another client; returns what the
    reader says."""
    r = clients.consume(reader or writer, c.bootstrap, f"mixed-{writer}", group, count).result()
    check(r["unique"] == count and r["digest"] == records.digest(0, count), reader or writer, "reads", writer, r)
    return r


def write_and_read(c, count):
    """Every client writes and reads that many, the latter in the group g-NAME."""
    for name in clients.MAKERS:
        topic = f"mixed-{name}"
        c.create_topic(topic, 3)
        r = clients.produce(name, c.bootstrap, topic, 0, count).result()
        check(r["sent"] == count and r["failed"] == 0, name, "produced", r)
        r = read(c, name, f"g-{name}", count)
        check(r["records"] == count, name, "read", r["records"], "records, some twice")
    return f"{len(clients.MAKERS)} clients x {count} records"
