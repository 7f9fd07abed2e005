"""Registry of consumer groups on the leader, with a coordinator for each active one.

All state belongs to one leadership and ends with it: the next leader reads etcd.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from seaweedmq.broker.groups.coordinator import Coordinator
from seaweedmq.broker.groups.join_request import check_start
from seaweedmq.broker.groups.store import GroupName, GroupStore, GroupStores
from seaweedmq.broker.groups.watermarks import Watermarks
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.group.events import Changed, GroupLimits, Reset
from seaweedmq.core.group.group_state_machine import GroupStateMachine
from seaweedmq.core.group.memory import GROUP_BYTES, GroupMemory, record_bytes
from seaweedmq.core.lineage.problems import check_recoverable
from seaweedmq.errors import Conflict, InvalidArgument, NotFound, ResourceExhausted, StaleMetadata
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.group_record import CommittedOffset, GroupRecord
from seaweedmq.model.messages.groups import GroupDescription, GroupOpen, GroupReply, GroupRequest, GroupSummary
from seaweedmq.model.messages.subscribe import Start, StartKind
from seaweedmq.model.topic import Topic, TopicName, check_name
from seaweedmq.ports import BrokerApi, Environment
from seaweedmq.rpc.transport import DETECTION_S
from seaweedmq.runtime.closing import closing
from seaweedmq.runtime.retrying import after_attempts, backoff, retrying

log = logging.getLogger(__name__)

CREATE_ATTEMPTS = 5
FORGET_PAUSE_S = 0.02


class Groups:
    """The consumer groups of one leadership."""

    def __init__(
        self,
        *,
        view: ClusterView,
        stores: GroupStores,
        dial: Callable[[str], BrokerApi],
        catch_up: Callable[[TopicName, int], Awaitable[None]],
        config: BrokerConfig,
        env: Environment,
        spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"],
        memory_bytes_max: int,
    ) -> None:
        self._view = view
        self.memory = GroupMemory(memory_bytes_max)
        self.stores = stores
        self._catch_up = catch_up
        self._config = config
        self._env = env
        self._spawn = spawn
        self._watermarks = Watermarks(view, dial)
        self._limits = GroupLimits(
            session_timeout_s=config.group_session_timeout_s,
            revoke_timeout_s=config.group_revoke_timeout_s,
            rebalance_delay_s=config.group_rebalance_delay_s,
            members_max=config.group_members_max,
            detection_s=DETECTION_S,
        )
        self._coordinators: dict[GroupName, Coordinator] = {}
        self._loading: WeakValueDictionary[GroupName, asyncio.Lock] = WeakValueDictionary()
        """Locks of loads: one caller loads or creates a group, and others wait for it."""
        self._loaded: set[GroupName] = set()
        """Groups that were loaded during this leadership."""
        self._running: set[asyncio.Task[None]] = set()
        self._over = False
        self._known: dict[GroupName, GroupRecord] | None = None
        """Every group as last written; None until first needed. Only the leader writes groups."""
        self._seen: dict[GroupName, tuple[int, int]] = {}
        """Version and number of segments of its topic that each coordinator knows."""

    async def run(self) -> None:
        """Notify coordinators of metadata changes until cancelled; then all streams end."""
        try:
            async with asyncio.TaskGroup() as duties:
                duties.create_task(self.stores.journal.run(), name="journal of groups")
                duties.create_task(self._follow_topics(), name="topics of groups")
        finally:
            self._over = True
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(set(self._running))

    async def _follow_topics(self) -> None:
        while True:
            seen = self._view.changes
            for name, coordinator in list(self._coordinators.items()):
                self._follow(name, coordinator)
            await self._view.wait_change(seen)

    async def join(self, opening: GroupOpen, requests: AsyncIterator[GroupRequest]) -> AsyncIterator[GroupReply]:
        """Serve a member's stream after its first message.

        Raises NotFound if the topic does not exist or was recreated, or the group was deleted; Fenced if another
        subscriber took the member's id; StaleMetadata or Unavailable if the member has to rejoin.
        """
        await self._catch_up(opening.topic, opening.topic_uid)
        coordinator = await self._coordinator(GroupName(opening.topic, opening.group), opening.start)
        if opening.topic_uid not in (0, coordinator.group.topic_uid):
            raise StaleMetadata(f"{coordinator.name} still ends for an earlier topic of this name: retry")
        session = await coordinator.open(opening)
        reading = asyncio.create_task(
            coordinator.read(session, requests), name=f"{opening.member} of {coordinator.name}"
        )
        try:
            async with closing(session.replies(reading)) as replies:
                async for reply in replies:
                    yield reply
        finally:
            coordinator.close(session)

    async def summaries(self) -> tuple[GroupSummary, ...]:
        """Answer ``calls.ListGroups``."""
        known = await self._all()
        return tuple(
            GroupSummary(group=name.group, topic=name.topic, members=len(record.members), generation=record.generation)
            for name, record in sorted(known.items(), key=lambda item: (item[0].group, item[0].topic))
        )

    async def describe(self, group: str) -> GroupDescription:
        """Answer ``calls.DescribeGroup``."""
        check_name("group", group)
        topics = []
        for name in await self._names(group):
            coordinator = await self._coordinator(name, None)
            marks = await self._watermarks.all_open(name.topic, self._config.rpc_timeout_s)
            topics.append(coordinator.describe(marks))
        return GroupDescription(group=group, topics=tuple(topics))

    async def reset(self, group: str, topic: TopicName, start: Start, force: bool) -> GroupDescription:
        """Answer ``calls.ResetGroup``."""
        check_name("group", group)
        check_start(start)
        name = GroupName(topic, group)
        if name not in await self._names(group):
            raise NotFound(f"group {group} does not read {topic}: see `seaweedmq group describe {group}`")
        coordinator = await self._coordinator(name, None)
        _check_idle(coordinator, "reset", force)
        offsets = await self._now(topic) if start.kind is StartKind.LATEST else {}
        _check_idle(coordinator, "reset", force)
        horizon = self._topic(topic).next_segment
        await coordinator.apply(Reset(start=start, horizon=horizon, offsets=offsets, at_us=self._env.wall_us()))
        return await self.describe(group)

    async def delete(self, group: str, force: bool) -> None:
        """Answer ``calls.DeleteGroup``."""
        check_name("group", group)
        coordinators = [await self._coordinator(name, None) for name in await self._names(group)]
        for coordinator in coordinators:
            _check_idle(coordinator, "delete", force)
        for coordinator in coordinators:
            await coordinator.delete(NotFound(f"{coordinator.name} was deleted"))
            self._forget(coordinator.name)

    async def forget_pruned(self, topic: TopicName) -> None:
        """Remove what the topic's groups committed in pruned segments.

        Each group does so when it reads the metadata. They are loaded one after the other, with a pause, since there
        may be thousands.
        """
        for name in [known for known in await self._all() if known.topic == topic]:
            try:
                await self._coordinator(name, None)
            except NotFound:
                continue  # deleted meanwhile
            await asyncio.sleep(FORGET_PAUSE_S)

    async def _names(self, group: str) -> list[GroupName]:
        found = sorted((n for n in await self._all() if n.group == group), key=lambda n: n.topic)
        if not found:
            raise NotFound(f"there is no group {group}: see `seaweedmq group list`")
        return found

    async def _all(self) -> dict[GroupName, GroupRecord]:
        """Return every group by name."""
        if self._known is None:
            found = await self.stores.records()
            if self._known is None:  # no other task was faster
                self._known = found | {name: c.group.record for name, c in self._coordinators.items()}
                self.memory.count(sum(map(record_bytes, self._known.values())))
        for name in [n for n, record in self._known.items() if self._uid(n.topic) != record.topic_uid]:
            self._forget(name)  # deleted with its topic
        return self._known

    async def _coordinator(self, name: GroupName, start: Start | None) -> Coordinator:
        """Return the coordinator of a group. With ``start``, create a missing group that begins there."""
        lock = self._loading.setdefault(name, asyncio.Lock())
        async with lock:
            coordinator = self._coordinators.get(name)
            if coordinator is None or coordinator.over:
                coordinator = await self._load(name, start)
            return coordinator

    async def _load(self, name: GroupName, start: Start | None) -> Coordinator:
        await self._catch_up(name.topic, 0)
        topic = self._topic(name.topic)
        store = self.stores.of(name)
        stored = await store.load(is_again=name in self._loaded)
        self._loaded.add(name)
        if stored is not None and stored[0].topic_uid != topic.uid:
            await store.delete()  # of an earlier topic of the same name
            stored = None
        if stored is None:
            if start is None:
                raise NotFound(f"there is no {name}: see `seaweedmq group list`")
            stored = await self._create(store, name, start)
        record, committed = stored
        coordinator = Coordinator(
            name,
            GroupStateMachine(record, committed, self._limits, asyncio.get_running_loop().time()),
            store=store,
            watermarks=self._watermarks,
            config=self._config,
            wall_us=self._env.wall_us,
            written=partial(self._note, name),
            memory=self.memory,
        )
        if self._over:
            raise StaleMetadata("the leader changed: the group continues at the new one")
        self._note(name, record)
        self._coordinators[name] = coordinator
        self._follow(name, coordinator)
        task = self._spawn(self._serve(coordinator), str(name))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return coordinator

    async def _serve(self, coordinator: Coordinator) -> None:
        try:
            await coordinator.run()
        finally:
            if self._coordinators.get(coordinator.name) is coordinator:
                del self._coordinators[coordinator.name]
                self._seen.pop(coordinator.name, None)

    async def _create(
        self, store: GroupStore, name: GroupName, start: Start
    ) -> tuple[GroupRecord, dict[int, CommittedOffset]]:
        if len(await self._all()) >= self._config.groups_max:
            raise ResourceExhausted(
                f"there are {self._config.groups_max} groups, the limit (groups_max): delete some "
                "(`seaweedmq group delete`), or raise groups_max"
            )
        self.memory.check(GROUP_BYTES, f"another group, {name},")
        creating = retrying(backoff(self._env.rng, 0.05, 1.0), on=Conflict, stop=after_attempts(CREATE_ATTEMPTS))
        async for attempt in creating:
            with attempt:
                # The start is fixed at the present end: a member may die before its first commit.
                offsets = await self._now(name.topic) if start.kind is StartKind.LATEST else {}
                topic = self._topic(name.topic)
                record = GroupRecord(
                    topic_uid=topic.uid,
                    start=start,
                    horizon=topic.next_segment,
                    generation=0,
                    members={},
                    owners={},
                    crashes={},
                )
                now_us = self._env.wall_us()
                committed = {s: CommittedOffset(offset=o, deliveries={}, at_us=now_us) for s, o in offsets.items()}
                await store.create(record, committed, self._view.topic_revision(name.topic))
        return record, committed

    async def _now(self, topic: TopicName) -> dict[int, int]:
        """Return the present end of every segment: of sealed ones their end, of open ones the high watermark.

        Raises Corrupt, with the file's name, if a segment cannot be recovered.
        """
        marks = await self._watermarks.all_open(topic, self._config.rpc_timeout_s)
        for segment in self._watermarks.segments(topic).values():
            check_recoverable(segment)
        return {
            number: marks[number] if segment.end_offset is None else segment.end_offset
            for number, segment in self._watermarks.segments(topic).items()
        }

    def _follow(self, name: GroupName, coordinator: Coordinator) -> None:
        """Notify a coordinator of changes of its topic."""
        topic = self._view.topics.get(name.topic)
        if topic is None or topic.uid != coordinator.group.topic_uid:
            coordinator.abandon(NotFound(f"topic {name.topic} was deleted"))
            return
        segments = self._watermarks.segments(name.topic)
        now = self._view.topic_version(name.topic), len(segments)
        if self._seen.get(name) != now:
            self._seen[name] = now
            coordinator.handle(Changed(dict(segments), topic.next_segment))

    def _note(self, name: GroupName, record: GroupRecord) -> None:
        if self._known is not None:
            self._forget(name)
            self._known[name] = record
            self.memory.count(record_bytes(record))

    def _forget(self, name: GroupName) -> None:
        if self._known is not None and (record := self._known.pop(name, None)) is not None:
            self.memory.count(-record_bytes(record))

    def _uid(self, name: TopicName) -> int | None:
        topic = self._view.topics.get(name)
        return topic.uid if topic else None

    def _topic(self, name: TopicName) -> Topic:
        topic = self._view.topics.get(name)
        if topic is None:
            raise NotFound(f"there is no topic {name}: create it with `seaweedmq topic create {name}`")
        return topic


def _check_idle(coordinator: Coordinator, what: str, force: bool) -> None:
    members = sorted(coordinator.group.members)
    if members and not force:
        more = f" and {len(members) - 3} more" if len(members) > 3 else ""
        raise InvalidArgument(
            f"{coordinator.name} has members ({', '.join(members[:3])}{more}): stop them first, or force the {what}"
        )
