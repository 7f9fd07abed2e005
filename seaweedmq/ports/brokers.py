"""Brokers, as clients and other brokers call them. Adapter: ``rpc``."""

from collections.abc import AsyncIterator
from typing import Protocol, TypeVar

from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.messages.blobs import BlobData, BlobRange, UploadReply, UploadRequest
from seaweedmq.model.messages.call_context import INTERNAL, CallContext
from seaweedmq.model.messages.calls import Call
from seaweedmq.model.messages.groups import GroupReply, GroupRequest
from seaweedmq.model.messages.publish import PublishReply, PublishRequest
from seaweedmq.model.messages.replication import ReplicateReply, ReplicateRequest
from seaweedmq.model.messages.subscribe import SubscribeReply, SubscribeRequest

R = TypeVar("R")


class LeaderApi(Protocol):
    """The calls that a broker answers for another one that forwards them: by itself, or not at all."""

    async def call(self, request: Call[R], context: CallContext = INTERNAL) -> R:
        """Answer a unary call: see ``model.messages.calls``."""

    def join_group(
        self, requests: AsyncIterator[GroupRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[GroupReply]:
        """Connect a member's stream to the coordinator: see ``model.messages.groups``."""


class BrokerApi(LeaderApi, Protocol):
    """A broker, local or remote. Errors are those of ``seaweedmq.errors`` on both sides.

    It forwards calls that another broker has to answer: the leader, or the broker that is to be drained. Listeners pass
    the context of the caller; a remote broker gets none, since its own listener makes one.
    """

    @property
    def forwarded(self) -> LeaderApi:
        """The same broker for forwarded calls, which it answers itself or rejects with Unavailable.

        So brokers that disagree about the leader do not forward a call back and forth.
        """

    def publish(
        self, requests: AsyncIterator[PublishRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[PublishReply]:
        """Publish frames: see ``model.messages.publish``."""

    def subscribe(
        self, requests: AsyncIterator[SubscribeRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[SubscribeReply]:
        """Subscribe to segments: see ``model.messages.subscribe``."""

    def replicate(
        self, requests: AsyncIterator[ReplicateRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[ReplicateReply]:
        """Replicate from a primary to this follower: see ``model.messages.replication``."""

    def upload(
        self, requests: AsyncIterator[UploadRequest], context: CallContext = INTERNAL
    ) -> AsyncIterator[UploadReply]:
        """Upload a payload: see ``model.messages.blobs``."""

    def read_blob(self, requests: AsyncIterator[BlobRange], context: CallContext = INTERNAL) -> AsyncIterator[BlobData]:
        """Read a range of a payload, the only request of the stream: see ``model.messages.blobs``."""

    async def report_load(self, reports: AsyncIterator[BrokerLoad], context: CallContext = INTERNAL) -> None:
        """Report loads to the leader until the stream ends.

        Raises:
            StaleMetadata: If the called broker does not lead.
        """


class Dialer(Protocol):
    """A pool of connections to brokers, by address."""

    def dial(self, address: str) -> BrokerApi:
        """Return the broker at ``address``. Nothing is sent yet: an unreachable broker fails at the first call.

        Raises:
            InvalidArgument: If ``address`` is not ``host:port``.
            Closed: If the dialer was closed.
        """

    def renew(self, address: str) -> None:
        """Reconnect at the next call, since another broker has the address by now."""

    async def close(self) -> None:
        """Close all connections."""
