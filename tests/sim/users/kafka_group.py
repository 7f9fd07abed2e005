"""A group of Kafka's in the simulated cluster: classic members that read what they are assigned from what was
committed, and die, freeze, leave and come back."""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seaweedmq.codec.kafka.assignment import assigned_partitions
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.messages import (
    API,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from seaweedmq.model.topic import TopicName
from tests.sim.machines.loop import Owner, OwnerState
from tests.sim.rules.kafka import Commit, GroupRules
from tests.sim.rules.retention import without
from tests.sim.users.kafka_client import KafkaClient, Refused
from tests.sim.users.kafka_reading import Fetcher, Got
from tests.support.history import History, Outcome, Violation

if TYPE_CHECKING:
    from tests.sim.world import World

GROUP = "kafka-readers"
JOIN_VERSIONS = (3, 5, 9)
SESSION_MS, REBALANCE_MS = 6_000, 4_000
"""As short as the coordinator lets it be; and what a round may take."""
JOIN_TIMEOUT_S = 15.0
HEARTBEAT_S = 0.5
LOOK_AGAIN_S = 0.1
RETRY_S = 0.1
COMMIT_SHARE = 0.4
"""Of the polls that brought something."""
ASK_AGAIN = frozenset(
    {Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.REQUEST_TIMED_OUT}
)
JOIN_AGAIN = frozenset({Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID})
ATTEMPTS_MAX = 4


class KafkaMember:
    """One place in the group, taken by one life after another."""

    def __init__(self, world: "World", group: "KafkaGroup", name: str) -> None:
        self._world = world
        self._group = group
        self._rules = group.rules
        self._name = name
        self._rng = world.rng(name)
        self._life = 0
        self._ended = asyncio.Event()
        self._leaving = False
        self.is_behind = False
        """Whether it has dealt with more than it committed."""
        self.owner = Owner(f"{name}-0")
        self.owner.state = OwnerState.DEAD

    async def run(self) -> None:
        """Live, and live again, until cancelled."""
        world = self._world
        while True:
            self._life += 1
            self._leaving = False
            self._ended = asyncio.Event()
            self.owner = Owner(f"{self._name}-{self._life}")
            world.note(self.owner.name, "starts")
            life = world.network.spawn(self.owner, self._live(), self.owner.name)
            life.add_done_callback(lambda _, ended=self._ended: ended.set(), context=world.context)
            await self._ended.wait()
            await asyncio.sleep(self._rng.choice((0.0, 0.3, 1.0)))

    async def _live(self) -> None:
        self._client = KafkaClient(self._world, self.owner, self._rng)
        self._coordinator: int | None = None
        self._version = self._rng.choice(JOIN_VERSIONS)
        self._id, self._generation, self._leader = "", -1, ""
        try:
            while not self._leaving:
                try:
                    await self._take_part()
                except Refused as refused:
                    self._world.note(self.owner.name, f"was refused: {refused}")
                    if refused.code is Code.UNKNOWN_MEMBER_ID:
                        self._id, self._generation = "", -1
                    elif refused.code not in JOIN_AGAIN | ASK_AGAIN:
                        self._world.violations.append(Violation("member gave up", f"{self.owner.name}: {refused}"))
                        await asyncio.sleep(1)
                except SeaweedMQError as error:
                    self._world.note(self.owner.name, f"begins again: {error}")
                await asyncio.sleep(self._rng.uniform(0, RETRY_S))
            await self._leave()
        finally:
            self._client.close()

    async def _take_part(self) -> None:
        """Of one generation, until there is another."""
        members = await self._join()
        assignment = await self._sync(members)
        mine = [number for _, number in assigned_partitions(assignment)]
        self._rules.owns(self._id, self._generation, self._leader, mine)
        self._world.note(self.owner.name, f"owns {mine} in generation {self._generation}")
        fetcher = Fetcher(self._client, self._group.topic, self._world.watermarks, follows_all=False)
        fetcher.positions = await self.committed(mine)
        count = len(self._client.leaders)
        loop = self._world.loop
        heartbeat_at, done = loop.time() + HEARTBEAT_S, dict(fetcher.positions)
        while not self._leaving:
            for got in await fetcher.poll() if mine else await _nothing():
                await self._process(got)
            self.is_behind = fetcher.positions != done
            if fetcher.positions != done and self._rng.random() < COMMIT_SHARE:
                await self._commit({p: o for p, o in fetcher.positions.items() if o != done[p]})
                done = dict(fetcher.positions)
            if loop.time() >= heartbeat_at:
                heartbeat_at = loop.time() + HEARTBEAT_S
                code = await self._heartbeat()
                if code is Code.REBALANCE_IN_PROGRESS:
                    break
            if members and len(self._client.leaders) > count:
                break  # the leader has more to give away
        if fetcher.positions != done:
            await self._commit({p: o for p, o in fetcher.positions.items() if o != done[p]})

    async def _process(self, got: Got) -> None:
        self._world.note(self.owner.name, f"got {got.partition}:{got.offset} {got.value[:24]!r}")
        if self._rng.random() < 0.1:
            await asyncio.sleep(self._rng.uniform(0, 0.05))
        self._group.on_delivered(got)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _ask(self, api: API, version: int, *, timeout_s: float = 3.0, **fields: Any) -> Any:
        """The coordinator's reply. Unavailable: there was none. Refused: there is no coordinator."""
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

    async def _join(self) -> Sequence[str]:
        """The members, if this is the leader, else nothing."""
        await self._client.refresh(self._group.topic.name)
        while True:
            newest = self._rules.newest
            reply = await self._ask(
                API.JOIN_GROUP,
                self._version,
                timeout_s=JOIN_TIMEOUT_S,
                member_id=self._id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1subscription")],
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                reason="",
            )
            if reply.error_code == Code.MEMBER_ID_REQUIRED:
                self._id = reply.member_id
                continue
            self._check(reply.error_code, "JoinGroup")
            break
        self._id, self._generation = reply.member_id, reply.generation_id
        self._rules.joined(self._id, self._generation, newest)
        self._leader = reply.leader
        self._world.note(self.owner.name, f"is {self._id} in generation {self._generation} of {reply.leader}")
        return [m.member_id for m in reply.members] if reply.leader == self._id else []

    async def _sync(self, members: Sequence[str]) -> bytes:
        make = SyncGroupRequest.SyncGroupRequestAssignment
        if members:
            await self._client.refresh(self._group.topic.name)
        shares = _shares(sorted(members), sorted(self._client.leaders), self._group.topic.name)
        reply = await self._ask(
            API.SYNC_GROUP,
            5,
            timeout_s=JOIN_TIMEOUT_S,
            member_id=self._id,
            generation_id=self._generation,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[make(member_id=member, assignment=share) for member, share in shares.items()],
        )
        self._check(reply.error_code, "SyncGroup")
        return bytes(reply.assignment)

    async def _heartbeat(self) -> Code:
        """Whether there is another round. The coordinator may be elsewhere by now, and knows the group all the same."""
        try:
            reply = await self._ask(
                API.HEARTBEAT, 4, member_id=self._id, generation_id=self._generation, group_instance_id=None
            )
        except SeaweedMQError as error:
            self._world.note(self.owner.name, f"no heartbeat: {error}")
            return Code.NONE
        code = Code(reply.error_code)
        if code in ASK_AGAIN:
            self._coordinator = None
        elif code is not Code.REBALANCE_IN_PROGRESS:
            self._check(code, "Heartbeat")
        return code

    async def _commit(self, offsets: Mapping[int, int]) -> None:
        """Try several times, as clients do. Raises Refused."""
        for attempt in range(ATTEMPTS_MAX):
            commit = self._rules.commits(self.owner.name, self._generation, offsets)
            try:
                code = await self._commit_once(offsets)
            except SeaweedMQError as error:
                self._world.note(self.owner.name, f"commit of {offsets} is unclear: {error}")
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
            generation_id_or_member_epoch=self._generation,
            member_id=self._id,
            group_instance_id=None,
            topics=[
                make(
                    name=self._group.topic.name,
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
        """Whether it needs no other attempt. Raises Refused."""
        if code is Code.NONE:
            self._rules.committed(commit)
            self._world.note(self.owner.name, f"committed {commit.offsets} in generation {commit.generation}")
            return True
        if code in ASK_AGAIN:  # it may have been appended
            self._coordinator = None
            return False
        self._rules.refused(commit)
        self._check(code, "OffsetCommit")
        return False

    async def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """What is committed of them, 0 where nothing is. Raises as ``_ask``; Refused."""
        make = OffsetFetchRequest.OffsetFetchRequestTopic
        began = self._rules.now()
        topics = [make(name=self._group.topic.name, partition_indexes=list(partitions))]
        reply = await self._ask(API.OFFSET_FETCH, 7, topics=topics, require_stable=True)
        self._check(reply.error_code, "OffsetFetch")
        found = {p.partition_index: p.committed_offset for t in reply.topics for p in t.partitions}
        self._world.note(self.owner.name, f"heard that {found} is committed")
        self._rules.read(self.owner.name, began, found)
        return {p: max(0, found[p]) for p in partitions}

    async def look(self) -> None:
        """Ask for all that is committed, as nobody's member, until there is an answer."""
        self._client, self._coordinator = KafkaClient(self._world, self.owner, self._rng), None
        while True:
            try:
                await self._client.refresh(self._group.topic.name)
                await self.committed(sorted(self._client.leaders))
            except SeaweedMQError as error:
                self._world.note(self.owner.name, f"asks again: {error}")
                await asyncio.sleep(RETRY_S)
            else:
                self._client.close()
                return

    async def look_at(self, address: str) -> None:
        """Ask this broker alone, once."""
        self._client, self._coordinator = KafkaClient(self._world, self.owner, self._rng), 0
        self._client.note_node(0, address)
        try:
            await self.committed(range(self._group.partitions))
        except SeaweedMQError as error:
            self._world.note(self.owner.name, f"was not told: {error}")
        self._client.close()

    async def _leave(self) -> None:
        member = LeaveGroupRequest.MemberIdentity(member_id=self._id, group_instance_id=None, reason="")
        try:
            await self._ask(API.LEAVE_GROUP, 5, members=[member])
        except SeaweedMQError as error:
            self._world.note(self.owner.name, f"leaves without a word: {error}")
        else:
            self._world.note(self.owner.name, "left")

    # --- what the nemesis does ----------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.owner.state is OwnerState.RUNNING

    def kill(self) -> None:
        """SIGKILL."""
        self._world.note(self.owner.name, "is killed")
        self.owner.state = OwnerState.DEAD
        self._world.network.break_owner(self.owner, silently=self._rng.random() < 0.5)
        self._ended.set()

    def leave(self) -> None:
        """When it comes to look."""
        self._leaving = True

    def freeze(self) -> Owner:
        """SIGSTOP. Returns who was frozen."""
        self._world.note(self.owner.name, "is frozen")
        self.owner.state = OwnerState.FROZEN
        return self.owner

    def thaw(self, owner: Owner) -> None:
        """SIGCONT, unless that life is over or thawed already."""
        if owner.state is OwnerState.FROZEN:
            self._world.note(owner.name, "is thawed")
            self._world.loop.thaw(owner)


async def _nothing() -> list[Got]:
    """A member without a share waits for another generation."""
    await asyncio.sleep(LOOK_AGAIN_S)
    return []


def _shares(members: Sequence[str], partitions: Sequence[int], topic: str) -> dict[str, bytes]:
    """As Kafka's ``ConsumerProtocolAssignment``, in turns."""
    name = topic.encode()
    shares = {}
    for number, member in enumerate(members):
        mine = partitions[number :: len(members)]
        head = struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, len(mine))
        shares[member] = head + struct.pack(f">{len(mine)}ii", *mine, -1)
    return shares


class KafkaGroup:
    """The members of one group that reads one topic, and what they saw."""

    def __init__(self, world: "World", topic: str, members: int, sent: History) -> None:
        self.topic = TopicName.parse(topic)
        self.rules = GroupRules()
        self._world = world
        self._sent = sent
        self._values: set[bytes] = set()
        self.partitions = world.scenario.topics[0].partitions or 1
        """To begin with."""
        self.members = [KafkaMember(world, self, f"kafka-member-{number}") for number in range(members)]

    def on_delivered(self, got: Got) -> None:
        """A member has dealt with it."""
        self.rules.delivered[got.partition].add(got.offset)
        self._values.add(got.value)

    async def finish(self) -> None:
        """Until the members were given everything that was acknowledged to publishers."""
        while self._missing():  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(LOOK_AGAIN_S)

    def _missing(self) -> set[bytes]:
        promised = without(self._sent, self._world.retained.starts(self.topic)).sent
        return {s.value for s in promised if s.outcome is Outcome.ACKED} - self._values

    async def look(self) -> None:
        """What is committed is what was, whoever tells it."""
        looker = self._looker()
        await self._world.network.spawn(looker.owner, looker.look())

    async def look_at(self, address: str) -> None:
        """Ask this broker what is committed, whether or not it is the one to be asked."""
        looker = self._looker()
        await self._world.network.spawn(looker.owner, looker.look_at(address))

    def _looker(self) -> KafkaMember:
        looker = KafkaMember(self._world, self, "kafka-looker")
        looker.owner = Owner("kafka-looker")
        return looker
