"""The memory rule of object stores: what is committed, and that it is in bundles before a leader reads them."""

import random
from dataclasses import dataclass, field

import pytest

from seaweedmq.core.segment import memory_rule as rules
from seaweedmq.core.segment.commit_rule import RaiseHighWatermark, RetrySoon
from seaweedmq.core.segment.memory_rule import LEASE_MARGIN, BundleSoon, memory_rule, must_bundle

TTL_S = 5.0


@dataclass
class At:
    """Ends of a log."""

    committed: int
    flushed: int
    replicated: int
    end: int


@pytest.mark.parametrize(
    ("at", "how", "actions"),
    [
        # the lease lives, the store is fast: the memory of all replicas is enough
        (At(10, 20, 30, 40), {}, [RaiseHighWatermark(30), RetrySoon()]),
        (At(30, 20, 30, 30), {}, [RetrySoon()]),
        (At(30, 30, 30, 30), {}, []),
        # what one machine alone holds, or requires ``stored``, waits for the bundle
        (At(10, 20, 30, 40), {"needs_flush": True}, [RaiseHighWatermark(20)]),
        (At(20, 20, 30, 40), {"needs_flush": True}, []),
        # the lease ends soon: only what is flushed, and the rest is bundled at once
        (At(10, 20, 30, 40), {"lease_left_s": 1.9}, [RaiseHighWatermark(20), BundleSoon(), RetrySoon()]),
        (At(20, 20, 30, 40), {"lease_left_s": -1.0}, [BundleSoon(), RetrySoon()]),
        # without any lease, what is flushed is committed
        (At(10, 20, 20, 20), {"lease_left_s": -60.0}, [RaiseHighWatermark(20)]),
        (At(10, 20, 20, 20), {"lease_left_s": -60.0, "needs_flush": True}, [RaiseHighWatermark(20)]),
        # the store is slow
        (At(10, 20, 30, 40), {"unflushed_s": 5.0}, [RaiseHighWatermark(20), RetrySoon()]),
        (At(10, 20, 30, 40), {"unflushed_s": 4.9}, [RaiseHighWatermark(30), RetrySoon()]),
        # a follower that was lost holds nothing back that is flushed
        (At(10, 30, 20, 40), {}, [RaiseHighWatermark(30), RetrySoon()]),
    ],
)
def test_the_rule(at: At, how: dict[str, float], actions: list[object]) -> None:
    given = {"needs_flush": False, "lease_left_s": 2.0, "ttl_s": TTL_S, "unflushed_s": 0.1, **how}
    assert list(memory_rule(at, **given)) == actions  # type: ignore[arg-type]


STEP_S = 0.05
PUT_S_MAX = LEASE_MARGIN * TTL_S - 2 * STEP_S
"""The longest PUT: the rule assumes that it takes less than the margin."""


@dataclass
class Replica:
    """A broker that holds frames ``[flushed, held)`` in memory and puts them into bundles."""

    rng: random.Random
    lease_end_s: float
    dies_s: float
    is_silent: bool = False
    held: int = 0
    put: int = 0
    """End of what is in a PUT."""
    put_s: float = 0.0
    puts: list[tuple[float, int]] = field(default_factory=list)
    """Time at which each PUT is applied, and the end of its frames; those below are in earlier ones."""

    def lives(self, now: float) -> bool:
        return now < self.dies_s

    def step(self, now: float, *, patience_s: float) -> None:
        if not self.lives(now) or now >= self.lease_end_s or self.held == self.put:
            return
        hurry = must_bundle(lease_left_s=self.lease_end_s - now, ttl_s=TTL_S) and not self.is_silent
        if hurry or now - self.put_s >= patience_s:
            applied_s = now + self.rng.uniform(0.01, PUT_S_MAX)
            if applied_s < self.dies_s or self.rng.random() < 0.5:
                self.puts.append((applied_s, self.held))
            self.put, self.put_s = self.held, now

    def flushed(self, now: float) -> int:
        """End of the bundles of which all lower ones are done."""
        end = 0
        for applied_s, run_end in self.puts:
            if applied_s > now:
                break
            end = run_end
        return end


def play(seed: int, *, silent_follower: bool = False) -> tuple[int, int]:
    """Let etcd fail and one of two machines die; return what was committed, and what the leader then finds."""
    rng = random.Random(seed)
    never = 1e9
    dies_s = rng.uniform(0, 6)
    primary_dies = rng.random() < 0.5
    primary = Replica(rng, TTL_S + rng.uniform(-2, 0), dies_s if primary_dies else never)
    follower = Replica(rng, TTL_S + rng.uniform(-2, 0), never if primary_dies else dies_s, silent_follower)
    committed, now = 0, 0.0
    since: dict[int, float] = {}
    while now < max(primary.lease_end_s, follower.lease_end_s):
        now += STEP_S
        if primary.lives(now):
            since[primary.held] = now
            primary.held += 1
        if primary.lives(now) and follower.lives(now) and now < follower.lease_end_s:
            follower.held = primary.held - 1  # one step behind
        primary.step(now, patience_s=1.0)
        follower.step(now, patience_s=never)
        if primary.lives(now):
            flushed = primary.flushed(now)
            at = At(committed, flushed, max(follower.held, flushed), primary.held)
            for action in memory_rule(
                at,
                needs_flush=False,
                lease_left_s=primary.lease_end_s - now,
                ttl_s=TTL_S,
                unflushed_s=now - since.get(flushed, now),
            ):
                if isinstance(action, RaiseHighWatermark):
                    committed = action.offset
    # The fence takes the first number that is not there: of each sequence the leader reads the PUTs below.
    return committed, max(primary.flushed(now), follower.flushed(now))


SEEDS = range(300)


def lost() -> list[int]:
    return [seed for seed in SEEDS if (found := play(seed)) and found[0] > found[1]]


def test_what_is_committed_is_in_bundles_when_all_leases_have_ended() -> None:
    results = [play(seed) for seed in SEEDS]
    assert [seed for seed in SEEDS if results[seed][0] > results[seed][1]] == []
    assert sum(committed for committed, _ in results) > 10_000


def test_memory_without_the_margin_is_found_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "memory_is_enough", lambda lease_left_s, ttl_s, unflushed_s: lease_left_s > 0)
    assert lost()


def test_a_follower_that_bundles_nothing_is_found_to_lose() -> None:
    results = [play(seed, silent_follower=True) for seed in SEEDS]
    assert any(committed > found for committed, found in results)
