"""The only member of a consumer group, without the seconds that Kafka needs to form a group."""

import time

from confluent_kafka import TopicPartition


class LoneMember:
    """A consumer to which the first poll assigns partition 0 of each topic that it has subscribed to."""

    all = ()

    def subscribe(self, topics, on_assign, on_revoke, on_lost):
        self.assigned, self.all = on_assign, [TopicPartition(topic, 0) for topic in topics]

    def poll(self, seconds):
        if self.all:
            self.assigned(self, self.all)
            self.all = []
        time.sleep(0.05)

    def assign(self, partitions):
        pass

    def unassign(self):
        pass

    def close(self):
        pass
