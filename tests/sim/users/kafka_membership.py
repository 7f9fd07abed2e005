"""Membership of a client in a Kafka group: its requests to the coordinator, and its generation."""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.kafka.wire.messages import (
    API,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from seaweedmq.model.kafka.codes import Code
from tests.sim.rules.kafka import Commit, GroupRules
from tests.sim.users.kafka_client import KafkaClient, Refused

GROUP = "kafka-readers"
JOIN_VERSIONS = (3, 5, 9)
SESSION_MS, REBALANCE_MS = 6_000, 4_000
"""Session timeout, the shortest that the coordinator allows, and rebalance timeout."""
JOIN_TIMEOUT_S = 15.0
RETRY_S = 0.1
ELSEWHERE = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS})
ASK_AGAIN = ELSEWHERE | {Code.REQUEST_TIMED_OUT}
ATTEMPTS_MAX = 4


class KafkaMembership:
    """The membership of a client in the group that reads one topic. ``client`` knows the partitions' leaders."""

    def __init__(
        self, client: KafkaClient, rules: GroupRules, topic: str, *, version: int, coordinator: int | None = None
    ) -> None:
        """Create a membership.

        Args:
            version: Version of JoinGroup.
            coordinator: Node that is queried first; None: the one that brokers name."""
        self._client = client
        self._rules = rules
        self._topic = topic
        self._version = version
        self._coordinator = coordinator
        self.id, self.generation, self.leader = "", -1, ""

    def forget(self) -> None:
        """Drop the member id, so that it joins as a new member."""
        self.id, self.generation = "", -1

    async def _ask(self, api: API, version: int, *, timeout_s: float = 3.0, **fields: Any) -> Any:
        """Return the coordinator's reply. Raises Unavailable: there was none. Refused: there is no coordinator."""
        if self._coordinator is None:
            self._coordinator = await self._client.coordinator(GROUP)
        try:
            connection = self._client.connection(self._coordinator, "group")
            return await connection.ask(api, version, timeout_s=timeout_s, group_id=GROUP, **fields)
        except Unavailable:
            self._coordinator = None
            raise

    def _check(self, code: int, what: str) -> None:
        if code in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        if code:
            raise Refused(code, what)

    async def join(self) -> Sequence[str]:
        """Join; return the members if this is the leader, else nothing."""
        await self._client.refresh(self._topic)
        while True:
            newest = self._rules.newest
            reply = await self._ask(
                API.JOIN_GROUP,
                self._version,
                timeout_s=JOIN_TIMEOUT_S,
                member_id=self.id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1subscription")],
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                reason="",
            )
            if reply.error_code == Code.MEMBER_ID_REQUIRED:
                self.id = reply.member_id
                continue
            self._check(reply.error_code, "JoinGroup")
            break
        self.id, self.generation = reply.member_id, reply.generation_id
        self._rules.joined(self.id, self.generation, newest)
        self.leader = reply.leader
        self._note(f"is {self.id} in generation {self.generation} of {reply.leader}")
        return [m.member_id for m in reply.members] if reply.leader == self.id else []

    async def sync(self, members: Sequence[str]) -> bytes:
        """Return the assignment. The leader assigns the partitions to ``members`` in turns."""
        make = SyncGroupRequest.SyncGroupRequestAssignment
        if members:
            await self._client.refresh(self._topic)
        shares = _shares(sorted(members), sorted(self._client.leaders), self._topic)
        reply = await self._ask(
            API.SYNC_GROUP,
            5,
            timeout_s=JOIN_TIMEOUT_S,
            member_id=self.id,
            generation_id=self.generation,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[make(member_id=member, assignment=share) for member, share in shares.items()],
        )
        self._check(reply.error_code, "SyncGroup")
        return bytes(reply.assignment)

    async def heartbeat(self) -> Code:
        """Return the reply's code, which shows a rebalance. A coordinator that moved still knows the group."""
        try:
            reply = await self._ask(
                API.HEARTBEAT, 4, member_id=self.id, generation_id=self.generation, group_instance_id=None
            )
        except SeaweedMQError as error:
            self._note(f"no heartbeat: {error}")
            return Code.NONE
        code = Code(reply.error_code)
        if code in ASK_AGAIN:
            self._coordinator = None
        elif code is not Code.REBALANCE_IN_PROGRESS:
            self._check(code, "Heartbeat")
        return code

    async def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit with several attempts, as clients do. Raises Refused."""
        for attempt in range(ATTEMPTS_MAX):
            commit = self._rules.commits(self._client.owner.name, self.generation, offsets)
            try:
                code = await self._commit_once(offsets)
            except SeaweedMQError as error:
                self._note(f"commit of {offsets} is unclear: {error}")
                await asyncio.sleep(RETRY_S * attempt)
                continue
            if self._settled(commit, code):
                return
            await asyncio.sleep(RETRY_S * attempt)

    async def _commit_once(self, offsets: Mapping[int, int]) -> Code:
        make = OffsetCommitRequest.OffsetCommitRequestTopic
        of_each = make.OffsetCommitRequestPartition
        reply = await self._ask(
            API.OFFSET_COMMIT,
            8,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            group_instance_id=None,
            topics=[
                make(
                    name=self._topic,
                    partitions=[
                        of_each(partition_index=p, committed_offset=o, committed_leader_epoch=-1, committed_metadata="")
                        for p, o in offsets.items()
                    ],
                )
            ],
        )
        codes = {part.error_code for part in reply.topics[0].partitions}
        assert len(codes) == 1, codes
        return Code(codes.pop())

    def _settled(self, commit: Commit, code: Code) -> bool:
        """Whether the commit needs no other attempt. Raises Refused."""
        if code is Code.NONE:
            self._rules.committed(commit)
            self._note(f"committed {commit.offsets} in generation {commit.generation}")
            return True
        if code in ASK_AGAIN:  # it may have been appended
            self._coordinator = None
            return False
        self._rules.refused(commit)
        self._check(code, "OffsetCommit")
        return False

    async def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the committed offsets of the partitions, 0 where none is. Raises as ``_ask``; Refused."""
        make = OffsetFetchRequest.OffsetFetchRequestTopic
        began = self._rules.now()
        topics = [make(name=self._topic, partition_indexes=list(partitions))]
        reply = await self._ask(API.OFFSET_FETCH, 7, topics=topics, require_stable=True)
        if partitions and reply.error_code in ELSEWHERE:
            self._rules.sent_away(self._client.owner.name, (p.error_code for t in reply.topics for p in t.partitions))
        self._check(reply.error_code, "OffsetFetch")
        found = {p.partition_index: p.committed_offset for t in reply.topics for p in t.partitions}
        self._note(f"heard that {found} is committed")
        self._rules.read(self._client.owner.name, began, found)
        return {p: max(0, found[p]) for p in partitions}

    async def leave(self) -> None:
        """Leave the group, without waiting for an answer."""
        member = LeaveGroupRequest.MemberIdentity(member_id=self.id, group_instance_id=None, reason="")
        try:
            await self._ask(API.LEAVE_GROUP, 5, members=[member])
        except SeaweedMQError as error:
            self._note(f"leaves without a word: {error}")
        else:
            self._note("left")

    def _note(self, what: str) -> None:
        self._client.world.note(self._client.owner.name, what)


def _shares(members: Sequence[str], partitions: Sequence[int], topic: str) -> dict[str, bytes]:
    """Return Kafka's ``ConsumerProtocolAssignment`` of each member, in turns."""
    name = topic.encode()
    shares = {}
    for number, member in enumerate(members):
        mine = partitions[number :: len(members)]
        head = struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, len(mine))
        shares[member] = head + struct.pack(f">{len(mine)}ii", *mine, -1)
    return shares
