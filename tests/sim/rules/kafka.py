"""What Kafka's clients must never be told: watermarks and commits that fall, generations that share or come back.

Judged as it happens, from what clients asked and heard alone. What was asked after something was heard has to know it;
of what was under way at the same time nothing is said.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seaweedmq.kafka.wire.codes import Code
from tests.support.history import Violation

NOTHING = -1


@dataclass(slots=True)
class Watermarks:
    """High watermarks of one topic's partitions, as Fetch replies tell them."""

    violations: list[Violation]
    _highest: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """Partition -> leader epoch -> what was told."""
    _lowest: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def floor(self, partition: int, epoch: int) -> int:
        """What a reply has to reach to what is asked now, by who asks the leader of this epoch."""
        return max((mark for of, mark in self._highest[partition].items() if of <= epoch), default=0)

    def told(self, who: str, partition: int, epoch: int, mark: int, floor: int) -> None:
        """A reply to what was asked when the floor was this."""
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
    """One OffsetCommit."""

    who: str
    generation: int
    offsets: Mapping[int, int]
    began: int
    newest: int
    """Generation that anybody had a share in when it began."""
    ended: float = math.inf
    """When its acknowledgement was heard; as long as nobody knows, it may take effect at any time."""
    is_acked: bool = False


@dataclass(slots=True)
class GroupRules:
    """Of one group that reads one topic."""

    violations: list[Violation] = field(default_factory=list)
    delivered: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Partition -> offsets that were dealt with."""
    acked_commits: int = 0
    _events: int = 0
    _newest: int = 0
    _leaders: dict[int, str] = field(default_factory=dict)
    _owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """Generation and partition -> member."""
    _commits: list[Commit] = field(default_factory=list)

    def now(self) -> int:
        """A moment, later than all others."""
        self._events += 1
        return self._events

    @property
    def newest(self) -> int:
        """The last generation that somebody got a share in. One that nobody did may end with its coordinator, and its
        number is given again, as in Kafka: nothing of it was written."""
        return self._newest

    def joined(self, member: str, generation: int, newest: int) -> None:
        """A JoinGroup was answered, that was asked when the newest generation was this."""
        if generation < newest:
            self._tell("generations", f"{member} joined generation {generation} after there was {newest}")

    def owns(self, member: str, generation: int, leader: str, partitions: Iterable[int]) -> None:
        """A SyncGroup was answered."""
        self._newest = max(self._newest, generation)
        known = self._leaders.setdefault(generation, leader)
        if known != leader:
            self._tell("generations", f"generation {generation} is led by {known}, and by {leader} as {member} heard")
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member)
            if owner != member:
                self._tell("two owners", f"{owner} and {member} both own {partition} in generation {generation}")

    def commits(self, who: str, generation: int, offsets: Mapping[int, int]) -> Commit:
        """Somebody asks for it."""
        commit = Commit(who, generation, dict(offsets), self.now(), self._newest)
        self._commits.append(commit)
        return commit

    def committed(self, commit: Commit) -> None:
        """It was acknowledged."""
        commit.ended, commit.is_acked = self.now(), True
        self.acked_commits += 1
        if NOTHING < commit.generation < commit.newest:
            told = f"{commit.who} committed {dict(commit.offsets)} in generation {commit.generation} of {commit.newest}"
            self._tell("zombie", told)

    def refused(self, commit: Commit) -> None:
        """It was refused for good: it never takes effect."""
        self._commits.remove(commit)

    def recreated(self) -> None:
        """The topic was recreated: no reply has a commit of the earlier one, but one that may yet take effect."""
        self._commits = [commit for commit in self._commits if not commit.is_acked]

    def read(self, who: str, began: int, offsets: Mapping[int, int]) -> None:
        """An OffsetFetch that began then was answered: it tells the last that was committed, or what is under way."""
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
                told = f"{offset} is committed of partition {partition}, and nobody was given {sorted(missing)[:5]}"
                self._tell("group lost", told)

    def sent_away(self, who: str, partitions: Iterable[int]) -> None:
        """An OffsetFetch was answered by somebody who can not know, with these errors of the partitions. librdkafka
        asks nobody else, and reads nothing, unless it hears of each that it is not settled."""
        heard = {Code(code) for code in partitions}
        if heard != {Code.UNSTABLE_OFFSET_COMMIT}:
            told = ", ".join(sorted(code.name for code in heard)) or "nothing"
            self._tell("left waiting", f"{who} asked where to begin, and heard {told} of its partitions")

    def _tell(self, rule: str, detail: str) -> None:
        self.violations.append(Violation(rule, detail))
