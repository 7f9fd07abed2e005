"""``XADD`` in pipelines, ``XREAD COUNT 10000``. Partitions are streams, chosen by a hash of the key."""

import itertools
import zlib
from collections.abc import Callable, Sequence

import redis

from benchmarks.contest.client import IDLE_TIMEOUT_S, Client, Tally, Topic
from benchmarks.contest.feed import Feed, Schedule
from benchmarks.contest.watch import Watch

READ_RECORDS = 10_000
FROM_THE_BEGINNING = b"0"


class RedisClient(Client):
    """redis-py; a pipeline is as large as a chunk, and fails if any command in it fails."""

    not_ready = (redis.RedisError,)
    creates_topics = False

    def __init__(self, address: str, *, fsync: bool) -> None:
        host, _, port = address.rpartition(":")
        self._redis = redis.Redis(host, int(port), protocol=2)
        self._redis.ping()

    def close(self) -> None:
        self._redis.close()

    def create(self, topics: Sequence[Topic]) -> None:
        """Do nothing: streams are created by their first record."""

    def delete(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            self._redis.unlink(*_streams(topic))

    def stored(self, topics: Sequence[Topic]) -> int:
        return sum(self._redis.xlen(stream) for topic in topics for stream in _streams(topic))

    def publish(self, call: str, topic: Topic, feed: Feed, watch: Watch) -> None:
        streams = _streams(topic)
        with watch:
            for chunk in feed:
                with self._redis.pipeline(transaction=False) as pipeline:
                    if topic.keyed:
                        for value, key in zip(chunk.values, chunk.keys, strict=True):
                            pipeline.xadd(streams[zlib.crc32(key) % len(streams)], {"k": key, "v": value})
                    else:
                        for value in chunk.values:
                            pipeline.xadd(streams[0], {"v": value})
                    pipeline.execute()

    def consume(self, call: str, topic: Topic) -> Tally:
        records = value_bytes = 0
        after = {stream.encode(): FROM_THE_BEGINNING for stream in _streams(topic)}
        while found := self._redis.xread(after, count=READ_RECORDS):
            for stream, entries in found:
                value_bytes += sum(len(fields[b"v"]) for _, fields in entries)
                records += len(entries)
                after[stream] = entries[-1][0]
        return Tally(records, value_bytes)

    def send(self, topics: Sequence[Topic], schedule: Schedule, watch: Watch) -> None:
        streams = itertools.cycle([_streams(topic)[0] for topic in topics])
        with watch:
            for records in schedule:
                with self._redis.pipeline(transaction=False) as pipeline:
                    for record in records:
                        pipeline.xadd(next(streams), {"v": record})
                    pipeline.execute()

    def receive(self, topic: Topic, count: int, ready: Callable[[], None], take: Callable[[bytes], None]) -> None:
        (stream,) = _streams(topic)
        last = FROM_THE_BEGINNING
        ready()
        while count > 0:
            found = self._redis.xread({stream: last}, count=READ_RECORDS, block=int(IDLE_TIMEOUT_S * 1_000))
            if not found:
                return
            ((_, entries),) = found
            for _, fields in entries:
                take(fields[b"v"])
            last = entries[-1][0]
            count -= len(entries)


def _streams(topic: Topic) -> list[str]:
    return [f"{topic.name}:{number}" for number in range(topic.partitions)]
