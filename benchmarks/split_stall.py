"""Delay of a publisher whose segment is split: a part of the suite ``small``."""

import itertools
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import seaweedmq
from benchmarks.measure import Measure, compared, yardstick
from seaweedmq.model.ring import RING_SLOTS_MAX

STALL_S_MAX = 0.3
INTERVAL_S = 0.001
"""Seconds between records."""
WARM_UP_S = 0.3
CALM_S = 0.5
"""Seconds that are observed before the split, and after it."""
KEYS = 100
RECORD = b"x" * 100
CALM = "longest time without an acknowledgement, no split"


def split_stall(client: "seaweedmq.Client", rounds: int) -> list[Measure]:
    """Split a topic of one segment per round, with a publisher of 1,000 keyed records a second."""
    found = [_round(client, f"bench/split-{number}") for number in range(rounds)]
    calm_s, stall_s, call_s = ([*values] for values in zip(*found, strict=True))
    return [
        yardstick(CALM, calm_s, "s"),
        compared(
            "split_stall",
            stall_s,
            "s",
            CALM,
            calm_s,
            value_max=STALL_S_MAX,
            call_s=round(statistics.median(call_s), 3),
        ),
    ]


def _round(client: "seaweedmq.Client", topic: str) -> tuple[float, float, float]:
    """Return the longest gaps between acknowledgements before and around a split, and the call's time, in seconds."""
    client.admin.create_topic(topic, durability="replicated", scaling="fixed")
    acked_s: list[float] = []
    keys = itertools.cycle([b"key-%d" % number for number in range(KEYS)])
    with client.publisher(topic) as publisher, ThreadPoolExecutor(1) as pool:

        def send_until(end_s: float) -> None:
            while (now_s := time.monotonic()) < end_s:
                publisher.send(RECORD, key=next(keys)).add_done_callback(lambda _: acked_s.append(time.monotonic()))
                time.sleep(max(0.0, now_s + INTERVAL_S - time.monotonic()))

        send_until(time.monotonic() + WARM_UP_S)
        calm_s = time.monotonic()
        send_until(calm_s + CALM_S)
        split_s = time.monotonic()
        splitting = pool.submit(client.admin.split_segment, topic, 0, RING_SLOTS_MAX // 2)
        while not splitting.done():
            send_until(time.monotonic() + INTERVAL_S)
        splitting.result()
        done_s = time.monotonic()
        send_until(done_s + CALM_S)
        publisher.flush(timeout=60)
    return longest_gap_s(acked_s, calm_s, split_s), longest_gap_s(acked_s, split_s, done_s + CALM_S), done_s - split_s


def longest_gap_s(times_s: Sequence[float], begin_s: float, end_s: float) -> float:
    """Return the longest time between two of these times, or a bound and the next of them, within the bounds."""
    within = [begin_s, *(at_s for at_s in sorted(times_s) if begin_s < at_s < end_s), end_s]
    return max(later - earlier for earlier, later in pairwise(within))
