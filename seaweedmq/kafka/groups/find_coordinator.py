"""Handler of FindCoordinator, which returns the node that coordinates a group."""

from typing import Any

from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.kafka.groups.coordinators import Coordinators
from seaweedmq.kafka.metadata.nodes import NO_NODE, Nodes
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.messages import FindCoordinatorResponse, HandlerGroup, Reply, Request
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.nodes import Node

OF_GROUPS, OF_TRANSACTIONS = 0, 1
MANY_KEYS_FROM = 4


class FindCoordinatorHandlers(HandlerGroup):
    """Handler of FindCoordinator; every broker answers for every group."""

    def __init__(self, coordinators: Coordinators, nodes: Nodes) -> None:
        self._coordinators = coordinators
        self._nodes = nodes

    async def find_coordinator(self, request: Request) -> Reply:
        """Return the coordinator of one key, or of many; each key has its own error."""
        body = request.body
        if request.version < MANY_KEYS_FROM:
            return await self._coordinator_of(FindCoordinatorResponse, body.key, body.key_type)
        reply_type, coordinators = FindCoordinatorResponse.Coordinator, []
        for key in body.coordinator_keys:
            coordinators.append(await self._coordinator_of(reply_type, key, body.key_type, key=key))
            await request.turn.pause()
        return FindCoordinatorResponse(coordinators=coordinators)

    async def _coordinator_of(self, reply_type: Any, group: str, key_type: int, **more: str) -> Any:
        try:
            node = await self._node_of(group, key_type)
        except SeaweedMQError as error:
            code = code_of(error, scope=ErrorScope.COORDINATOR)
            return reply_type(error_code=code, error_message=str(error), node_id=NO_NODE, host="", port=NO_NODE, **more)
        return reply_type(error_code=Code.NONE, node_id=node.id, host=node.host, port=node.port, **more)

    async def _node_of(self, group: str, key_type: int) -> Node:
        if key_type == OF_TRANSACTIONS:  # after any other error librdkafka retries silently until its timeout
            raise KafkaError(
                Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactions are not supported yet: use a producer without transactional.id",
            )
        if key_type != OF_GROUPS:
            raise KafkaError(
                Code.INVALID_REQUEST, f"key type {key_type} is unknown: only groups ({OF_GROUPS}) have coordinators"
            )
        broker = await self._coordinators.broker_of(group)
        await self._nodes.ready()
        node = self._nodes.of_broker(broker)
        if node is None:
            raise Unavailable(
                f"broker {broker}, the coordinator of group {group!r}, is not registered for Kafka clients: retry"
            )
        return node
