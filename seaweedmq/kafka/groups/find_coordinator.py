"""FindCoordinator: which node has the group."""

from typing import Any

from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.kafka.coordinators import Coordinators
from seaweedmq.kafka.metadata.nodes import NO_NODE, Nodes
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.messages import API, FindCoordinatorResponse, Handler, Reply, Request
from seaweedmq.model.kafka_nodes import Node

OF_GROUPS, OF_TRANSACTIONS = 0, 1
MANY_KEYS_FROM = 4


class FindCoordinatorHandlers:
    """Answers it, at any broker."""

    def __init__(self, coordinators: Coordinators, nodes: Nodes) -> None:
        self._coordinators = coordinators
        self._nodes = nodes

    def handlers(self) -> dict[int, Handler]:
        """By API key."""
        return {API.FIND_COORDINATOR: self.find}

    async def find(self, request: Request) -> Reply:
        """FindCoordinator, of one key, or of many."""
        body = request.body
        if request.version < MANY_KEYS_FROM:
            return await self._told(FindCoordinatorResponse, body.key, body.key_type)
        make, coordinators = FindCoordinatorResponse.Coordinator, []
        for key in body.coordinator_keys:
            coordinators.append(await self._told(make, key, body.key_type, key=key))
            await request.turn.pause()
        return FindCoordinatorResponse(coordinators=coordinators)

    async def _told(self, make: Any, group: str, key_type: int, **more: str) -> Any:
        try:
            node = await self._node_of(group, key_type)
        except SeaweedMQError as error:
            code = code_of(error, place=ErrorScope.COORDINATOR)
            return make(error_code=code, error_message=str(error), node_id=NO_NODE, host="", port=NO_NODE, **more)
        return make(error_code=Code.NONE, node_id=node.id, host=node.host, port=node.port, **more)

    async def _node_of(self, group: str, key_type: int) -> Node:
        if key_type == OF_TRANSACTIONS:  # with any other error librdkafka asks again until its timeout, without a word
            raise KafkaError(
                Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactions are not supported yet: use a producer without transactional.id",
            )
        if key_type != OF_GROUPS:
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"key type {key_type}: there are coordinators of groups ({OF_GROUPS}) and no others",
            )
        broker = await self._coordinators.broker_of(group)
        await self._nodes.ready()
        node = self._nodes.of_broker(broker)
        if node is None:
            raise Unavailable(
                f"broker {broker}, which has group {group!r}, is gone or does not listen for Kafka: retry"
            )
        return node
