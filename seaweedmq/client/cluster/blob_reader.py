"""Reader of the payloads that the records of a topic refer to, through any broker."""

from collections.abc import AsyncIterator

from seaweedmq.client.cluster.broker_stream import broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.retry import retrying
from seaweedmq.model.messages.blobs import BlobRange
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.retrying import deadline


class ClusterBlobReader:
    """A ``ports.BlobReader`` of one topic. Errors are those of the port.

    A range that a broker cannot deliver is requested from another one, for ``read_retry_timeout_s``.
    """

    def __init__(self, cluster: Cluster, topic: TopicName, topic_uid: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._topic_uid = topic_uid

    async def read(self, uri: str, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``position`` on; none at the end of the payload."""
        config, data = self._cluster.config, bytearray()
        async for attempt in retrying(config, self._cluster.env.rng, deadline(config.read_retry_timeout_s)):
            with attempt:
                await self._read(uri, position, length, data)
        return bytes(data)

    async def _read(self, uri: str, position: int, length: int, data: bytearray) -> None:
        """Append the rest of a range to the data that an earlier attempt received."""
        wanted = BlobRange(
            topic=self._topic,
            topic_uid=self._topic_uid,
            uri=uri,
            position=position + len(data),
            length=length - len(data),
        )
        if not wanted.length:
            return
        async with broker_stream(
            self._cluster, self._cluster.addresses()[0], lambda api: api.read_blob(_only(wanted)), f"payload {uri}"
        ) as stream:
            async for reply in stream.replies:
                stream.expect(self._cluster.config.rpc_timeout_s)
                data += reply.data


async def _only(wanted: BlobRange) -> AsyncIterator[BlobRange]:
    yield wanted
