"""Routing of calls about Kafka consumer groups to the groups' coordinators.

The coordinator is the primary of the group's partition of the internal topic. The Kafka gateway in that broker's
process answers the call.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from seaweedmq.codec.kafka.group_records import partition_of_group
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import NotFound, Unavailable
from seaweedmq.model.kafka.group_admin import groups_topic
from seaweedmq.model.messages.calls import Call, DeleteKafkaGroup, DescribeKafkaGroup, ListKafkaGroups, ResetKafkaGroup
from seaweedmq.ports import BrokerApi

R = TypeVar("R")
KAFKA_GROUP_CALLS: Final = (ListKafkaGroups, DescribeKafkaGroup, ResetKafkaGroup, DeleteKafkaGroup)


class KafkaGroupRouter:
    """A router of group calls to their coordinators, which include this broker."""

    def __init__(
        self, view: ClusterView, namespace: str, *, dial: Callable[[str], BrokerApi], broker_id: Callable[[], str]
    ) -> None:
        self.answer: Callable[[Call[Any]], Awaitable[Any]] | None = None
        """The gateway's handler of calls about the groups coordinated by this broker; None without a gateway."""
        self._view = view
        self._topic = groups_topic(namespace)
        self._dial = dial
        self._broker_id = broker_id

    async def call(self, request: Any) -> Any:
        """Forward a call to the coordinators concerned and return the combined answer.

        Raises NotFound if the group does not exist, and Unavailable if a coordinator is moving, loading, or on a broker
        that does not listen for Kafka clients.
        """
        if isinstance(request, ListKafkaGroups):
            primaries = sorted({segment.primary for segment in self._view.open_of(self._topic).values()})
            found = await asyncio.gather(*(self._ask(primary, request) for primary in primaries))
            return tuple(sorted((group for part in found for group in part), key=lambda group: group.group))
        return await self._ask(self._coordinator(request.group), request)

    async def here(self, request: Call[R]) -> R:
        """Answer a call about the groups coordinated by this broker.

        Raises Unavailable if a coordinator is loading, or this broker does not listen for Kafka clients.
        """
        if self.answer is None:
            raise Unavailable(
                f"broker {self._broker_id()} leads a partition of {self._topic} but does not listen for Kafka clients: "
                "start every broker with --kafka-listen"
            )
        answer: R = await self.answer(request)
        return answer

    async def _ask(self, broker: str, request: Call[R]) -> R:
        if broker == self._broker_id():
            return await self.here(request)
        return await self._dial(broker).forwarded.call(request)

    def _coordinator(self, group: str) -> str:
        topic = self._view.topics.get(self._topic)
        if topic is None or topic.partitions is None:
            raise NotFound(f"there is no Kafka group {group!r}: see `seaweedmq group list`")
        number = partition_of_group(group, topic.partitions)
        for segment in self._view.open_of(self._topic).values():
            if number in segment.slots:
                return segment.primary
        raise Unavailable(f"partition {number} of {self._topic} is moving to another broker: retry")
