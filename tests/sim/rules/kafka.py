"""Rules for replies to Kafka clients: watermarks and commits never fall, generations never share partitions or return.

The rules judge each reply at once, only from the clients' requests and replies. A request sent after a reply must
reflect it; nothing is required of concurrent ones.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seaweedmq.model.kafka.codes import Code
from tests.support.history import Violation

NOTHING = -1


@dataclass(slots=True)
class Watermarks:
    """High watermarks of one topic's partitions, from Fetch replies."""

    violations: list[Violation]
    _highest: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """Partition -> leader epoch -> highest reported high watermark."""
    _lowest: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def floor(self, partition: int, epoch: int) -> int:
        """Return the lowest valid watermark of a reply to a request sent now to the leader of this epoch."""
        return max((mark for of, mark in self._highest[partition].items() if of <= epoch), default=0)

    def told(self, who: str, partition: int, epoch: int, mark: int, floor: int) -> None:
        """Judge a reply's watermark; ``floor`` is from when the request was sent."""
        ceiling = min((low for of, low in self._lowest[partition].items() if of > epoch), default=mark)
        if not floor <= mark <= ceiling:
            told = (
                f"{who} heard {mark} of partition {partition}, epoch {epoch}, where {floor} to {ceiling} was possible"
            )
            self.violations.append(Violation("watermark", told))
        highest, lowest = self._highest[partition], self._lowest[partition]
        highest[epoch] = max(mark, highest.get(epoch, 0))
        lowest[epoch] = min(mark, lowest.get(epoch, mark))


@dataclass(slots=True, eq=False)
class Commit:
    """An OffsetCommit request."""

    who: str
    generation: int
    offsets: Mapping[int, int]
    began: int
    newest: int
    """The newest generation with an assigned member when the request was sent."""
    ended: float = math.inf
    """Time of its acknowledgement; while that is unknown, the commit may take effect at any time."""
    is_acked: bool = False


@dataclass(slots=True)
class GroupRules:
    """Rules for one group that reads one topic."""

    violations: list[Violation] = field(default_factory=list)
    delivered: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Partition -> processed offsets."""
    acked_commits: int = 0
    _events: int = 0
    _newest: int = 0
    _leaders: dict[int, str] = field(default_factory=dict)
    _owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """Generation and partition -> member."""
    _commits: list[Commit] = field(default_factory=list)

    def now(self) -> int:
        """Return a moment later than all previous ones."""
        self._events += 1
        return self._events

    @property
    def newest(self) -> int:
        """Return the last generation in which a member got its assignment.

        A generation without one may end with its coordinator, and its number is then reused, as in Kafka: it left no
        record."""
        return self._newest

    def joined(self, member: str, generation: int, newest: int) -> None:
        if generation < newest:
            self._tell("generations", f"{member} joined generation {generation} after there was {newest}")

    def owns(self, member: str, generation: int, leader: str, partitions: Iterable[int]) -> None:
        self._newest = max(self._newest, generation)
        known = self._leaders.setdefault(generation, leader)
        if known != leader:
            self._tell("generations", f"generation {generation} is led by {known}, and by {leader} as {member} heard")
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member)
            if owner != member:
                self._tell("two owners", f"{owner} and {member} both own {partition} in generation {generation}")

    def commits(self, who: str, generation: int, offsets: Mapping[int, int]) -> Commit:
        commit = Commit(who, generation, dict(offsets), self.now(), self._newest)
        self._commits.append(commit)
        return commit

    def committed(self, commit: Commit) -> None:
        commit.ended, commit.is_acked = self.now(), True
        self.acked_commits += 1
        if NOTHING < commit.generation < commit.newest:
            told = f"{commit.who} committed {dict(commit.offsets)} in generation {commit.generation} of {commit.newest}"
            self._tell("zombie", told)

    def refused(self, commit: Commit) -> None:
        """Note that a commit was rejected finally: it never takes effect."""
        self._commits.remove(commit)

    def recreated(self) -> None:
        """Note that the topic was recreated: replies have no commit of the earlier one, unless still in progress."""
        self._commits = [commit for commit in self._commits if not commit.is_acked]

    def read(self, who: str, began: int, offsets: Mapping[int, int]) -> None:
        """Judge an OffsetFetch reply to a request that began then: it has the last commit, or one in progress."""
        for partition, offset in offsets.items():
            of_partition = [c for c in self._commits if partition in c.offsets]
            before = [c for c in of_partition if c.ended < began]
            overwritten = max((c.began for c in before), default=-1)
            possible = {c.offsets[partition] for c in of_partition if c.ended >= overwritten}
            if offset not in possible and (offset != NOTHING or before):
                told = f"{who} heard that {offset} is committed of partition {partition}, of {sorted(possible)}"
                self._tell("commits", told)
            missing = set(range(offset)) - self.delivered[partition] if offset > 0 else set()
            if missing:
                told = f"{offset} is committed of partition {partition}, and no member was given {sorted(missing)[:5]}"
                self._tell("group lost", told)

    def sent_away(self, who: str, partitions: Iterable[int]) -> None:
        """Judge an OffsetFetch reply, with these errors of the partitions, of a broker that cannot know the offsets.

        Unless each partition is reported as unsettled, librdkafka queries no other broker and reads nothing."""
        heard = {Code(code) for code in partitions}
        if heard != {Code.UNSTABLE_OFFSET_COMMIT}:
            told = ", ".join(sorted(code.name for code in heard)) or "nothing"
            self._tell("left waiting", f"{who} asked where to begin, and heard {told} of its partitions")

    def _tell(self, rule: str, detail: str) -> None:
        self.violations.append(Violation(rule, detail))
