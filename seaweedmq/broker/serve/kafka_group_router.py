"""Calls about groups of Kafka's consumers: passed on to whoever coordinates a group, which is the primary of its
partition of the internal topic. What is answered there is the business of the gateway in that process."""

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
    """Finds the brokers that answer, this one among them."""

    def __init__(
        self,
        view: ClusterView,
        namespace: str,
        *,
        dial: Callable[[str], BrokerApi],
        broker_id: Callable[[], str],
    ) -> None:
        self.answer: Callable[[Call[Any]], Awaitable[Any]] | None = None
        """Of the gateway in this process, about the groups that are coordinated here; None: there is none."""
        self._view = view
        self._topic = groups_topic(namespace)
        self._dial = dial
        self._broker_id = broker_id

    async def call(self, request: Any) -> Any:
        """The answer, of whoever has it.

        Raises:
            NotFound: no such group.
            Unavailable: a coordinator is moving, loading, or at a broker that does not listen for Kafka clients.
        """
        if isinstance(request, ListKafkaGroups):
            primaries = sorted({segment.primary for segment in self._view.open_of(self._topic).values()})
            found = await asyncio.gather(*(self._ask(primary, request) for primary in primaries))
            return tuple(sorted((group for part in found for group in part), key=lambda group: group.group))
        return await self._ask(self._coordinator(request.group), request)

    async def here(self, request: Call[R]) -> R:
        """The answer about what is coordinated here. Raises Unavailable: see ``call``."""
        if self.answer is None:
            raise Unavailable(
                f"broker {self._broker_id()} leads a part of {self._topic}, and does not listen for Kafka clients: "
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
