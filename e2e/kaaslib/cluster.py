"""A cluster as its clients see it, wherever its brokers run."""

from . import runner, wire


class Cluster:
    """What all clusters have that say where broker n is (address) and what the KaasCluster's status is (status)."""

    topic_s = 30  # how long a new topic may take

    def conn(self, n=0):
        return wire.Conn(self.address(n))

    def broker_status(self, n):
        return next((b for b in self.status().get("brokers", []) if b["id"] == n), None)

    def metadata(self, topics=None, n=0):
        """What broker n answers (see wire.Conn.metadata)."""
        with self.conn(n) as c:
            return c.metadata(topics)

    def partitions(self, topic, n=0):
        """{partition: its row in broker n's answer}"""
        return self.metadata([topic], n)["topics"][topic]["partitions"]

    def leaders(self, topic, n=0):
        """{partition: (leader, leader epoch)}"""
        return {i: (p["leader"], p["epoch"]) for i, p in self.partitions(topic, n).items()}

    def led_by(self, topic, n=0):
        """{partition: leader}"""
        return {i: p["leader"] for i, p in self.partitions(topic, n).items()}

    def leading(self):
        """The brokers that lead something."""
        return {p["leader"] for t in self.metadata()["topics"].values() for p in t["partitions"].values()}

    def end_offset(self, topic, partition):
        """High watermark of a partition, asked of its leader."""
        with self.conn(self.led_by(topic)[partition]) as c:
            return c.end_offset(topic, partition)

    def create_topic(self, name, partitions=3, configs=None):
        """Makes it, unless it is there, and waits for its leaders."""
        def attempt():
            with self.conn(0) as c:
                return c.create_topics([name], partitions, configs=configs)[name] in (0, 36)
        runner.eventually(attempt, self.topic_s, what=f"topic {name}")

        def led():
            t = self.metadata([name])["topics"][name]
            return t["error"] == 0 and all(p["leader"] >= 0 for p in t["partitions"].values())
        runner.eventually(led, self.topic_s, what=f"leaders of {name}")
