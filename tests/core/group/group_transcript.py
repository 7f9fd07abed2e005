"""Transcripts of a group: each line is the effect of one action."""

from dataclasses import replace

from seaweedmq.core.group import events
from seaweedmq.core.group.group_state_machine import GroupStateMachine
from seaweedmq.model.group_record import CommittedOffset, GroupRecord
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommit, GroupCommitted, Position
from seaweedmq.model.messages.subscribe import EARLIEST, Start
from seaweedmq.model.segment import Segment, SegmentState
from tests.support.segments import make_segment

LIMITS = events.GroupLimits(
    session_timeout_s=6, revoke_timeout_s=300, rebalance_delay_s=0.2, members_max=5, detection_s=2.5
)


def segment(number: int, *predecessors: int, start: int = 0, end: int | None = None) -> Segment:
    return replace(make_segment(end, start), id=number, predecessors=predecessors)


class Transcript:
    """A group of a topic with so many open segments. Every method returns its effects as lines."""

    def __init__(
        self, segments: int = 0, *more: Segment, start: Start = EARLIEST, limits: events.GroupLimits = LIMITS
    ) -> None:
        self.limits = limits
        self.now = 0.0
        self.segments = {s.id: s for s in [*map(segment, range(segments)), *more]}
        self.horizon = max(self.segments, default=-1) + 1
        self.record = GroupRecord(
            topic_uid=7, start=start, horizon=self.horizon, generation=0, members={}, owners={}, crashes={}
        )
        self.committed: dict[int, CommittedOffset] = {}
        self.group = GroupStateMachine(self.record, {}, self.limits, self.now)
        self.streams: dict[str, int] = {}
        self.speakers: dict[int, str] = {}
        self.begin()

    def begin(self) -> list[str]:
        return self.does(events.Changed(self.segments, self.next_segment))

    @property
    def next_segment(self) -> int:
        return max([self.horizon - 1, *self.segments]) + 1

    def does(self, event: events.Event) -> list[str]:
        outcome = self.group.handle(event, self.now)
        self.record = outcome.record or self.record
        for number, value in outcome.committed.items():
            if value is None:
                self.committed.pop(number, None)
            else:
                self.committed[number] = value
        return self.told(outcome)

    def told(self, outcome: events.Outcome) -> list[str]:
        return [self._line(reply) for reply in outcome.replies]

    def _line(self, reply: events.Reply | events.StreamEnd) -> str:
        who = self.speakers[reply.stream]
        match reply:
            case events.StreamEnd(_, error):
                return f"{who}: bye, {type(error).__name__}" if error else f"{who}: bye"
            case events.Reply(_, GroupAssignment() as assignment):
                owned = [
                    f"{o.segment}@{o.generation} from {o.start.kind}"
                    + (f" {o.start.value}" if o.start.value else "")
                    + (f" crashed {o.crashes}" if o.crashes else "")
                    + "".join(f" {offset} seen {count}" for offset, count in o.deliveries.items())
                    for o in assignment.owned
                ]
                return f"{who}: owns {', '.join(owned) or 'nothing'}"
            case events.Reply(_, GroupCommitted(number, refused)):
                return f"{who}: #{number} kept" + "".join(f"; {s} refused: {why}" for s, why in refused.items())
        raise AssertionError(reply)

    # --- what members do
    def opens(self, member: str, incarnation: int = 1, held: dict[int, int] | None = None) -> list[str]:
        stream = len(self.speakers) + 1
        self.streams[member] = stream
        self.speakers[stream] = f"{member}/{incarnation}"
        return self.does(
            events.Opened(stream=stream, member=member, incarnation=incarnation, client="host", held=held or {})
        )

    def breaks(self, member: str) -> list[str]:
        return self.does(events.StreamLost(self.streams[member]))

    def leaves(self, member: str) -> list[str]:
        return self.does(events.MemberLeft(self.streams[member]))

    def releases(self, member: str, **segments: int) -> list[str]:
        """``_3=1``: segment 3 of generation 1."""
        return self.does(events.Released(self.streams[member], {int(s[1:]): g for s, g in segments.items()}))

    def commits(self, member: str, number: int, offset: int, generation: int, **deliveries: int) -> list[str]:
        """``_7=2``: the record at 7 was delivered twice."""
        position = Position(
            segment=number,
            generation=generation,
            offset=offset,
            deliveries={int(o[1:]): count for o, count in deliveries.items()},
        )
        return self.does(events.Committing(self.streams[member], GroupCommit(1, (position,)), at_us=1))

    # --- what else happens
    def publishes(self, **ends: int) -> list[str]:
        """Report high watermarks: ``_3=10`` means 10 for segment 3."""
        return self.does(events.Learned({int(s[1:]): end for s, end in ends.items()}))

    def succeeds(self, parents: dict[int, int], *children: int) -> list[str]:
        """Seal predecessors at their end offsets, and open successors."""
        for number, end in parents.items():
            self.segments[number] = replace(self.segments[number], state=SegmentState.SEALED, end_offset=end)
        for child in children:
            self.segments[child] = segment(child, *parents, start=max(parents.values()))
        return self.begin()

    def expires(self, *numbers: int) -> list[str]:
        """Let retention remove segments."""
        self.segments = {s: value for s, value in self.segments.items() if s not in numbers}
        return self.begin()

    def waits(self, seconds: float) -> list[str]:
        """Let time pass, waking the group whenever it requests that."""
        until, lines = self.now + seconds, list[str]()
        while (wake_at := self.group.wake_at) is not None and wake_at <= until:
            self.now = wake_at
            lines += self.does(events.Tick())
        self.now = until
        return lines

    def resets(self, start: Start, **offsets: int) -> list[str]:
        return self.does(
            events.Reset(
                start=start,
                horizon=self.next_segment,
                offsets={int(s[1:]): offset for s, offset in offsets.items()},
                at_us=2,
            )
        )

    def leader_dies(self) -> list[str]:
        """Replace the leader by another, which loads the persisted state."""
        self.group = GroupStateMachine(self.record, self.committed, self.limits, self.now)
        return self.begin()
