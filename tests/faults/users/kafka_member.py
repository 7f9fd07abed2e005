"""A member of a librdkafka group as a process that can be killed: ``python -m tests.faults.users.kafka_member``.

It writes delivered records to a file, one per line, and then commits them, one commit at a time, repeatedly until one
succeeds or it loses the partitions. The file also gets the coordinator's answer to each commit. The process prints
``ready`` once it is a member; on SIGTERM it leaves the group and exits 0.
"""

import os
import signal
import struct
import sys
import time

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.faults.users.member import brief

SESSION_S = 6.0
HEARTBEAT_S = 1.0
POLL_S = 0.1
LOG_LEVEL = 1
"""Log level of librdkafka, which omits ended connections: faults end them on purpose."""
BATCH_RECORDS = 200
PAUSE_S = 0.05
"""Seconds after a rejected commit."""
GENERATION = struct.Struct("=i")
GENERATION_AT = len("CGMDv2:")


class Member:
    def __init__(self, bootstrap: str, group: str, name: str, path: str, strategy: str, topics: list[str]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._pending: dict[tuple[str, int], int] = {}
        """Offsets after delivered, uncommitted records."""
        self._since_ns = 0
        """First attempt to commit them."""
        self._is_ready = False
        self.is_stopping = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": LOG_LEVEL,
                "client.id": name,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": int(SESSION_S * 1_000),
                "heartbeat.interval.ms": int(HEARTBEAT_S * 1_000),
                "partition.assignment.strategy": strategy,
            }
        )
        self._consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def run(self) -> None:
        while not self.is_stopping:
            messages = self._consumer.consume(BATCH_RECORDS, POLL_S)
            at_ns = time.monotonic_ns()
            records = [message for message in messages if message.error() is None]
            for message in messages:
                if message.error() is not None:
                    self._note("trouble", at_ns, message.error().name())
            if records:
                os.write(self._file, b"".join(_line(at_ns, record) for record in records))
            for record in records:
                self._pending[record.topic(), record.partition()] = record.offset() + 1
            self._commit()
        self._commit()
        self._consumer.close()

    def _commit(self) -> None:
        """Commit once; a rejected commit is retried after the next records."""
        if not self._pending:
            return
        generation = self._generation()
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in self._pending.items()]
        begin_ns = time.monotonic_ns()
        self._since_ns = self._since_ns or begin_ns
        try:
            said = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._note("refused", time.monotonic_ns(), generation, error.args[0].name())
            time.sleep(PAUSE_S)
            return
        end_ns = time.monotonic_ns()
        for one in said:
            if one.error is None:
                self._note(
                    "committed", self._since_ns, begin_ns, end_ns, generation, one.topic, one.partition, one.offset
                )
                self._pending.pop((one.topic, one.partition), None)
            else:
                self._note("refused", end_ns, generation, one.error.name())
        if not self._pending:
            self._since_ns = 0

    def _generation(self) -> int:
        """Return the generation that librdkafka keeps for transactions."""
        metadata: bytes = self._consumer.consumer_group_metadata()
        (generation,) = GENERATION.unpack_from(metadata, GENERATION_AT)
        return int(generation)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        at_ns, generation = time.monotonic_ns(), self._generation()
        for p in partitions:
            self._note("assigned", at_ns, generation, p.topic, p.partition)
        if not self._is_ready:
            self._is_ready = True
            print("ready", flush=True)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._lost(_, partitions)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for p in partitions:
            self._pending.pop((p.topic, p.partition), None)
            self._note("revoked", time.monotonic_ns(), p.topic, p.partition)
        self._since_ns = 0

    def _note(self, *words: object) -> None:
        os.write(self._file, "\t".join(map(str, words)).encode() + b"\n")


def _line(at_ns: int, record: Message) -> bytes:
    """Return a line. Keys and values of the tests hold no tabs and no line feeds."""
    place = f"given\t{at_ns}\t{record.topic()}\t{record.partition()}\t{record.offset()}\t".encode()
    return b"%b%b\t%b\n" % (place, record.key() or b"", brief(record.value() or b""))


if __name__ == "__main__":
    bootstrap, group, name, path, strategy, *topics = sys.argv[1:]
    member = Member(bootstrap, group, name, path, strategy, topics)

    def stop(*_: object) -> None:
        member.is_stopping = True

    signal.signal(signal.SIGTERM, stop)
    member.run()
