"""Balancer of segments: feeds ``core.balance.decide`` and carries out its decisions."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.broker.leader.placement import Placement
from seaweedmq.broker.leader.transition_runner import Transition, TransitionRunner
from seaweedmq.core.balance.decide import (
    Action,
    BalancerSettings,
    ClusterColumns,
    Hold,
    Loads,
    Merge,
    Move,
    Split,
    decide,
)
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.broker import BrokerLoad, Decision, DecisionKind
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

MISSED_REPORTS_MAX = 3
"""Validity of a broker's load report, and wait of a new leader for the first reports, in report intervals."""
DECIDING_SHARE_MAX = 0.05
"""Largest share of the leader's time spent on decisions: with very many segments it decides less often."""

KINDS: Mapping[type[Action], DecisionKind] = {
    Split: DecisionKind.SPLIT,
    Merge: DecisionKind.MERGE,
    Move: DecisionKind.MOVE,
    Hold: DecisionKind.HOLD,
}


class Balancer:
    """The leader's balancer: splits, merges and moves segments. ``repairer`` replaces lost replicas."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        placement: Placement,
        transitions: TransitionRunner,
        config: BrokerConfig,
        wall_us: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._placement = placement
        self._transitions = transitions
        self._config = config
        self._settings = BalancerSettings.of(config)
        self._wall_us = wall_us
        self._group: asyncio.TaskGroup | None = None
        """Task group of the transitions; None while ``run`` does not run."""
        self._tasks: dict[asyncio.Task[None], Transition] = {}
        """Transitions under way, or queued behind ``changes_at_once_max``."""
        self._failures_log = OnceLogger(log)
        self._begun = asyncio.Semaphore(config.changes_at_once_max)
        self.holds: dict[SegmentId, Decision] = {}
        """Changes that are due but blocked at present, each with its start and reason."""

    async def run(self) -> None:
        """Decide once an interval, until cancelled. A new leader first waits for load reports, up to a limit."""
        async with asyncio.TaskGroup() as self._group:
            try:
                await self._decide_repeatedly()
            finally:
                self._group = None
                self.holds.clear()

    async def _decide_repeatedly(self) -> None:
        loop = asyncio.get_running_loop()
        patience = loop.time() + MISSED_REPORTS_MAX * self._config.load_report_interval_s
        pause_s = self._config.balance_interval_s
        while True:
            await asyncio.sleep(pause_s)
            if self._unreported() and loop.time() < patience:
                continue
            began = loop.time()
            self._begin(self._decide(at_once=False))
            pause_s = max(self._config.balance_interval_s, (loop.time() - began) / DECIDING_SHARE_MAX)

    async def rebalance(self) -> tuple[Decision, ...]:
        """Answer ``calls.Rebalance`` once the changes are done, or at half a call's deadline; they then continue.

        Raises Unavailable if the load of a broker is unknown, or this broker does not lead or has just begun to.
        """
        silent = self._unreported()
        if silent:
            address = self._metadata.view.brokers[silent[0]].address
            raise Unavailable(f"broker {address} has no recent load report: retry")
        actions = self._decide(at_once=True)
        decided = [self._decision(action) for action in actions if not isinstance(action, Hold)]
        tasks = self._begin(actions)
        if tasks:
            await asyncio.wait(tasks, timeout=self._config.rpc_timeout_s / 2)
        return tuple(decided)

    def _unreported(self) -> list[str]:
        """Live brokers whose load is unknown."""
        reported = {report.broker for report in self._reports()}
        return sorted(b.id for b in self._metadata.view.brokers.values() if b.id not in reported and not b.draining)

    def _reports(self) -> list[BrokerLoad]:
        """The last report of each broker, without outdated ones."""
        patience_s = MISSED_REPORTS_MAX * self._config.load_report_interval_s
        since = asyncio.get_running_loop().time() - patience_s
        placement = self._placement
        return [report for broker, report in placement.loads.items() if placement.reported[broker] >= since]

    def _decide(self, *, at_once: bool) -> list[Action]:
        view = self._metadata.view
        cluster = ClusterColumns.of(
            view.topics.values(),
            self._metadata.open_segments(),
            view.brokers.values(),
            self._settings,
            suspected=self._placement.suspects,
            changing={*self._transitions.under_way, *self._planned()},
        )
        loads = Loads.of(cluster, self._reports())
        actions = decide(cluster, loads, self._wall_us(), self._settings, at_once=at_once)
        return [self._if_room(action) for action in actions]

    def _if_room(self, action: Action) -> Action:
        """Hold a split while brokers are at their limit of open segments."""
        if not isinstance(action, Split):
            return action
        topic = self._metadata.topic(action.topic)
        full = self._placement.no_room_to_split(topic, self._segment(action.topic, action.segment))
        reason = f"no room for two: {full}; {action.reason}"
        return Hold(action.topic, action.segment, reason) if full else action

    def _begin(self, actions: Sequence[Action]) -> list["asyncio.Task[None]"]:
        if self._group is None:
            raise Unavailable("the leadership changed a moment ago: retry")
        self._note([action for action in actions if isinstance(action, Hold)])
        tasks = []
        for transition in filter(None, map(self._step, actions)):
            task = self._group.create_task(
                self._carry_out(transition), name=f"{transition.kind} {transition.predecessors[0]}"
            )
            self._tasks[task] = transition
            task.add_done_callback(self._tasks.pop)
            tasks.append(task)
        return tasks

    def _planned(self) -> list[SegmentId]:
        return [predecessor.key for transition in self._tasks.values() for predecessor in transition.predecessors]

    def _note(self, holds: Sequence[Hold]) -> None:
        """Record the current holds; log new ones."""
        held = {SegmentId(hold.topic, hold.segment): hold for hold in holds}
        self.holds = {key: decision for key, decision in self.holds.items() if key in held}
        for key, hold in held.items():
            if key not in self.holds:
                self.holds[key] = self._decision(hold)
                log.info("segment change held: %s: %s", hold.topic, hold.reason)

    def _decision(self, action: Action) -> Decision:
        segments = action.segments if isinstance(action, Merge) else (action.segment,)
        kind = KINDS[type(action)]
        return Decision(at_us=self._wall_us(), topic=action.topic, segments=segments, kind=kind, reason=action.reason)

    def _step(self, action: Action) -> Transition | None:
        """Return the transition that carries out the action; None for a hold."""
        match action:
            case Split():
                predecessor = self._segment(action.topic, action.segment)
                ranges = predecessor.slots.split(action.at)
                return Transition(
                    kind="split",
                    predecessors=(predecessor,),
                    ranges=ranges,
                    preferred=action.placement,
                    reason=action.reason,
                )
            case Merge():
                lower, upper = (self._segment(action.topic, number) for number in action.segments)
                slots = KeyRange(lower.slots.lo, upper.slots.hi)
                return Transition(
                    kind="merge",
                    predecessors=(lower, upper),
                    ranges=(slots,),
                    preferred=(action.placement,),
                    reason=action.reason,
                )
            case Move():
                predecessor = self._segment(action.topic, action.segment)
                return Transition(
                    kind="move",
                    predecessors=(predecessor,),
                    ranges=(predecessor.slots,),
                    preferred=(action.replicas,),
                    reason=action.reason,
                )
            case Hold():
                return None

    def _segment(self, name: TopicName, number: int) -> Segment:
        found = self._metadata.view.segment(SegmentId(name, number))
        assert found is not None, "a decision names segments of the view"
        return found

    async def _carry_out(self, transition: Transition) -> None:
        """Carry out one transition. A failed one is dropped: the next decision repeats it if it is still due."""
        async with self._begun:
            if not all(map(self._metadata.is_open, transition.predecessors)):
                return
            what = f"{transition.kind} of {transition.predecessors[0]}"
            try:
                await self._transitions.carry_out(transition)
                self._failures_log.over(what)
            except SeaweedMQError as error:
                self._failures_log.add(what, error)
