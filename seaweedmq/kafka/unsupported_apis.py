"""Handlers of APIs with a constant answer in SeaweedMQ: permissions, quotas, elections and KIP-848 groups."""

from typing import Any

from seaweedmq.kafka.metadata.topic_directory import TopicDirectory
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.kafka.wire.messages import (
    DescribeClientQuotasResponse,
    ElectLeadersResponse,
    HandlerGroup,
    ListPartitionReassignmentsResponse,
    Reply,
    Request,
)
from seaweedmq.model.kafka.codes import Code
from seaweedmq.runtime.turns import Turn

PREFERRED, UNCLEAN = 0, 1
"""Kinds of elections."""


class UnsupportedHandlers(HandlerGroup):
    """Handlers of requests about permissions, quotas, elections, reassignments, and of members of KIP-848 groups."""

    def __init__(self, directory: TopicDirectory) -> None:
        self._directory = directory

    async def describe_acls(self, _: Request) -> Reply:
        """Reject a request about ACLs with SECURITY_DISABLED: every client may do everything."""
        raise KafkaError(Code.SECURITY_DISABLED, "SeaweedMQ has no permissions: every client may do everything")

    create_acls = delete_acls = describe_acls

    async def describe_client_quotas(self, _: Request) -> Reply:
        """Return no quotas: no client is throttled."""
        return DescribeClientQuotasResponse(error_code=Code.NONE, error_message=None, entries=[])

    async def list_partition_reassignments(self, _: Request) -> Reply:
        """Return no reassignments: a segment moves in one step."""
        return ListPartitionReassignmentsResponse(error_code=Code.NONE, error_message=None, topics=[])

    async def consumer_group_heartbeat(self, _: Request) -> Reply:
        """Reject a member of a KIP-848 group with UNSUPPORTED_VERSION.

        The API is advertised because librdkafka otherwise waits without end and without a message.
        """
        raise KafkaError(
            Code.UNSUPPORTED_VERSION, "SeaweedMQ does not support the new group protocol: set group.protocol=classic"
        )

    async def elect_leaders(self, request: Request) -> Reply:
        """Answer for each partition that no election is needed: the cluster's leader places every partition.

        A request without partitions, for all of them, gets an empty result, and one for an unknown type of election
        INVALID_REQUEST.
        """
        await self._directory.nodes.ready()
        body = request.body
        if body.election_type not in (PREFERRED, UNCLEAN):
            raise KafkaError(Code.INVALID_REQUEST, f"election type {body.election_type} is unknown: use 0 or 1")
        kind, turn = body.election_type, request.turn
        results = [await self._elected(asked, kind, turn) for asked in body.topic_partitions or ()]
        return ElectLeadersResponse(error_code=Code.NONE, replica_election_results=results)

    async def _elected(self, asked: Any, kind: int, turn: Turn) -> Any:
        result = ElectLeadersResponse.ReplicaElectionResult
        found = []
        for partition in asked.partitions:
            code, why = self._why_not(asked.topic, partition, kind)
            found.append(result.PartitionResult(partition_id=partition, error_code=code, error_message=why))
            await turn.pause()
        return result(topic=asked.topic, partition_result=found)

    def _why_not(self, topic: str, partition: int, kind: int) -> tuple[int, str]:
        try:
            led = self._directory.find(topic).partition(partition)
        except KafkaError as refusal:
            return refusal.kafka_code, str(refusal)
        if led.error is Code.NONE:
            return Code.ELECTION_NOT_NEEDED, f"partition {partition} of {topic} has leader {led.leader}"
        code = Code.PREFERRED_LEADER_NOT_AVAILABLE if kind == PREFERRED else Code.ELIGIBLE_LEADERS_NOT_AVAILABLE
        return (
            code,
            f"partition {partition} of {topic} gets a leader once a broker has capacity: no election is held",
        )
