"""The account of requests and replies: admission, waiting and closing, without socket and clock."""

import random

import pytest

from seaweedmq.kafka.wire.budget import (
    GUARANTEED_BYTES,
    PRESS_INTERVAL_S,
    SLOW_BYTES_PER_S_MIN,
    SLOW_WINDOW_S,
    RequestMemory,
)

KIB = 1024
BYTES_MAX = 400 * KIB
POOLED_MAX = BYTES_MAX // 2


class Owner:
    def __init__(self, memory: RequestMemory) -> None:
        self.grants = 0
        self.hurries = 0
        self.polls = True
        """Whether one of its requests waits for events."""
        self.moved: int | None = None
        self.reasons: list[str] = []
        self.share = memory.open(self)

    def granted(self) -> None:
        self.grants += 1

    def moved_bytes(self) -> int | None:
        return self.moved

    def answer_waiting(self) -> bool:
        self.hurries += 1
        return self.polls

    def fail(self, reason: str) -> None:
        self.reasons.append(reason)


def test_guaranteed_bytes_are_there_whatever_others_hold() -> None:
    memory = RequestMemory(100 * GUARANTEED_BYTES)
    greedy = Owner(memory).share
    assert greedy.take(1 << 30), "a request above the whole bound is let in alone"
    for _ in range(20):
        assert Owner(memory).share.take(GUARANTEED_BYTES)
    assert memory.waiting == 0


def test_many_connections_divide_the_guaranteed_part() -> None:
    memory = RequestMemory(64 * KIB)
    shares = [Owner(memory).share for _ in range(16)]
    assert memory.guaranteed_max == 16 * KIB
    assert shares[0].free_bytes == KIB + memory.pooled_max // 2
    for share in shares:
        assert share.take(KIB)
    assert memory.guaranteed == memory.guaranteed_max
    assert memory.pooled == 0


def test_a_share_may_hold_half_of_what_is_free() -> None:
    memory = RequestMemory(BYTES_MAX)
    first, second = Owner(memory).share, Owner(memory).share
    assert first.free_bytes == GUARANTEED_BYTES + POOLED_MAX // 2
    assert first.take(first.free_bytes)
    assert first.free_bytes == 0
    assert second.free_bytes == GUARANTEED_BYTES + POOLED_MAX // 4
    assert second.take(second.free_bytes)
    assert memory.reserved == 0


def test_a_small_amount_does_not_wait_behind_a_large_one() -> None:
    memory = RequestMemory(BYTES_MAX)
    holder, large, small = (Owner(memory) for _ in range(3))
    assert holder.share.take(300 * KIB)
    assert not large.share.take(300 * KIB)
    assert small.share.take(20 * KIB)
    assert memory.waiting == 1


def test_the_longest_waiting_is_let_in_next_however_large_it_is() -> None:
    memory = RequestMemory(BYTES_MAX)
    owners = [Owner(memory) for _ in range(3)]
    assert owners[0].share.take(300 * KIB)
    assert not owners[1].share.take(200 * KIB)
    assert not owners[2].share.take(200 * KIB)
    assert owners[0].share.end_request()
    owners[0].share.give(300 * KIB)
    assert [owner.grants for owner in owners] == [0, 0, 0], "it holds the reserve until its request is answered"
    owners[0].share.release()
    assert [owner.grants for owner in owners] == [0, 1, 0]
    assert owners[1].share.end_request()
    owners[1].share.give(200 * KIB)
    owners[1].share.release()
    assert [owner.grants for owner in owners] == [0, 1, 1]


def test_the_reserve_serves_one_request_and_not_the_next_of_its_share() -> None:
    memory = RequestMemory(BYTES_MAX)
    share, other = Owner(memory).share, Owner(memory)
    assert share.take(200 * KIB)
    assert share.take(50 * KIB), "it is still the same request"
    assert share.end_request()
    assert not share.end_request()
    assert not share.take(150 * KIB)
    share.stop_waiting()
    assert not other.share.take(150 * KIB)
    share.give(250 * KIB)
    share.release()
    assert other.grants == 1


def test_what_may_be_large_is_not_taken_from_the_guaranteed_part() -> None:
    memory = RequestMemory(BYTES_MAX)
    share = Owner(memory).share
    assert share.take(8 * KIB, is_guaranteed=False)
    assert (memory.guaranteed, memory.pooled) == (0, 8 * KIB)


def test_a_forced_reply_counts_and_keeps_others_waiting() -> None:
    memory = RequestMemory(BYTES_MAX)
    deaf, holder, other = (Owner(memory) for _ in range(3))
    deaf.share.force(10 * BYTES_MAX)
    assert holder.share.take(20 * KIB), "the reserve"
    assert not other.share.take(20 * KIB)
    deaf.share.give(10 * BYTES_MAX)
    assert other.grants == 1


def test_a_share_that_closes_gives_its_turn_away() -> None:
    memory = RequestMemory(BYTES_MAX)
    first, second = Owner(memory), Owner(memory)
    assert first.share.take(300 * KIB)
    assert not second.share.take(300 * KIB)
    first.share.close()
    assert second.grants == 1
    first.share.give(300 * KIB)
    second.share.close()
    second.share.give(300 * KIB)
    assert memory.taken_bytes == 0


def test_giving_back_twice_is_a_defect() -> None:
    memory = RequestMemory(BYTES_MAX)
    share = Owner(memory).share
    assert share.take(KIB)
    with pytest.raises(AssertionError, match="given back twice"):
        share.give(2 * KIB)


def test_a_slow_client_is_closed_only_while_others_wait() -> None:
    memory = RequestMemory(BYTES_MAX)
    slow, waits = Owner(memory), Owner(memory)
    slow.moved = 0
    assert slow.share.take(300 * KIB)
    for now in range(10):
        memory.press(now)
    assert not slow.reasons, "no share waits"
    assert not waits.share.take(300 * KIB)
    memory.press(20.0)
    slow.moved += int(SLOW_BYTES_PER_S_MIN * SLOW_WINDOW_S)
    memory.press(20.0 + SLOW_WINDOW_S)
    assert not slow.reasons, "it is fast enough"
    slow.moved += 100
    memory.press(20.0 + 2 * SLOW_WINDOW_S)
    assert len(slow.reasons) == 1
    assert "sent and read 100 bytes in 2.0 s" in slow.reasons[0]


def test_a_client_is_not_slow_over_a_time_in_which_none_waited() -> None:
    memory = RequestMemory(BYTES_MAX)
    holder, waits = Owner(memory), Owner(memory)
    holder.moved = 0
    assert holder.share.take(300 * KIB)
    assert not waits.share.take(300 * KIB)
    memory.press(0.0)
    memory.press(1_000.0)
    assert not holder.reasons
    memory.press(1_000.0 + SLOW_WINDOW_S)
    assert len(holder.reasons) == 1


def test_clients_that_the_broker_keeps_waiting_are_hurried_and_not_closed() -> None:
    memory = RequestMemory(BYTES_MAX)
    polls, waits, small = (Owner(memory) for _ in range(3))
    assert polls.share.take(300 * KIB)
    assert small.share.take(GUARANTEED_BYTES)
    assert not waits.share.take(300 * KIB)
    memory.press(0.0)
    memory.press(PRESS_INTERVAL_S / 2)
    assert (polls.hurries, waits.hurries, small.hurries) == (1, 0, 0)
    memory.press(PRESS_INTERVAL_S)
    assert polls.hurries == 2


def test_no_more_are_hurried_than_others_need_and_the_largest_first() -> None:
    memory = RequestMemory(8 * BYTES_MAX)
    polls = [Owner(memory) for _ in range(24)]
    for number, poll in enumerate(polls):
        poll.share.force(GUARANTEED_BYTES + (80 if number == 7 else 64) * KIB)
    holder, small = Owner(memory), Owner(memory)
    assert holder.share.take(100 * KIB), "the reserve"
    small.share.force(GUARANTEED_BYTES)
    assert not small.share.take(32 * KIB)
    polls[7].polls = holder.polls = False
    memory.press(0.0)
    assert polls[7].hurries == 1, "it holds the most, and frees nothing"
    assert sum(poll.hurries for poll in polls) == 2
    for poll in polls:
        if poll.hurries and poll.polls:
            poll.share.give(poll.share.held_bytes)
    assert small.grants == 1


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_requests_ends_with_all_served_and_nothing_held(seed: int) -> None:
    rng = random.Random(seed)
    memory = RequestMemory(rng.choice((64 * KIB, BYTES_MAX, 8 * BYTES_MAX)))
    walkers = [Walker(memory, rng) for _ in range(rng.choice((1, 3, 30)))]
    largest = max(walker.largest for walker in walkers)
    for _ in range(3_000):
        walker = rng.choice(walkers)
        walker.step()
        check(memory, walkers, largest)
    for _ in range(100_000):
        busy = [walker for walker in walkers if not walker.finish()]
        check(memory, walkers, largest)
        if not busy:
            break
    assert memory.waiting == 0
    assert memory.taken_bytes == 0


def check(memory: RequestMemory, walkers: list["Walker"], largest: int) -> None:
    shares = [walker.owner.share for walker in walkers]
    assert memory.guaranteed == sum(share.guaranteed for share in shares)
    assert memory.pooled == sum(share.pooled for share in shares)
    assert memory.reserved == sum(share.reserved for share in shares)
    assert sum(share.reserved > 0 for share in shares) <= 1
    assert memory.guaranteed <= max(memory.guaranteed_max, 0)
    assert memory.pooled <= memory.pooled_max + largest, "and what was reserved, then settled"
    assert memory.reserved <= largest
    assert memory.waiting == sum(bool(share.wanted) for share in shares)


class Walker:
    """A connection that sends requests of any size in steps, and gets replies to some of them."""

    def __init__(self, memory: RequestMemory, rng: random.Random) -> None:
        self.owner = Owner(memory)
        self.rng = rng
        self.largest = rng.choice((2 * KIB, 100 * KIB, 2 * BYTES_MAX))
        self.lacking = 0
        self.growing = 0
        self.asked = 0
        self.whole: list[tuple[int, bool]] = []

    def step(self) -> None:
        if self.rng.random() < 0.4:
            self.answer()
        elif not self.lacking:
            self.lacking = self.rng.randint(1, self.largest)
        self.receive()

    def finish(self) -> bool:
        self.receive()
        self.answer()
        return not (self.lacking or self.whole)

    def receive(self) -> None:
        share = self.owner.share
        if share.wanted or not self.lacking:
            return
        step = self.asked or self.rng.randint(1, self.lacking)
        if not self.asked and not share.take(step):
            self.asked = step
            return
        self.asked = 0
        self.growing += step
        self.lacking -= step
        if not self.lacking:
            self.whole.append((self.growing, share.end_request()))
            self.growing = 0

    def answer(self) -> None:
        if self.whole:
            size, is_reserved = self.whole.pop(0)
            self.owner.share.give(size)
            if is_reserved:
                self.owner.share.release()
