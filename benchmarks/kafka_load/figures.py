"""Report of a run: measures with the promises that they stand for, and the limits exceeded under too much load."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.kafka_load.crew import Crew
from benchmarks.kafka_load.servers import SETTLE_SHARE, Watch
from benchmarks.kafka_load.tiers import Tier
from benchmarks.measure import Measure, compared, yardstick

RECORDS, DUE, CORE, LINGER = "records acknowledged", "records due", "one core", "linger of the producers"
FIRST = "records due in the first step"
P99_MS_MAX = 1_000.0
"""Limit of delivery: above it a load is too high."""
RATE_SHARE_MIN = 0.95
MACHINE_PERCENT_MAX = 95.0
RESIDENT_MB_MAX = 1_500.0
GROWTH_MAX = 1.2
"""Limit of the growth of memory, descriptors and files, from when they have settled to the end."""
WINDOW_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Measurements of one load."""

    producers: int
    consumers: int
    due_per_s: float
    sent_per_s: float
    refused: int
    ack_ms_p99: float
    """Acknowledgement of the slowest producer."""
    deliver_ms_p50: float
    deliver_ms_p99: float
    broker_percent: float
    machine_percent: float
    resident_mb: float

    def line(self) -> str:
        """Return a line of progress."""
        return (
            f"{self.producers} producers, {self.consumers} consumers, {self.due_per_s:,.0f} records/s due, "
            f"{self.sent_per_s:,.0f} sent: delivered p50 {self.deliver_ms_p50:.1f} ms, "
            f"p99 {self.deliver_ms_p99:.1f} ms, acknowledged p99 {self.ack_ms_p99:.1f} ms, "
            f"brokers {self.broker_percent:.0f} % of a core, {self.resident_mb:.0f} MB, "
            f"machine {self.machine_percent:.0f} %, {self.refused} refused"
        )


def what_gave(step: Step) -> str | None:
    """Return the exceeded limit of a load, the gravest first, with the exhausted resource; None if there is none."""
    signs = (
        ("errors", step.refused > 0),
        ("memory", step.resident_mb > RESIDENT_MB_MAX),
        ("rate", step.sent_per_s < RATE_SHARE_MIN * step.due_per_s),
        ("latency", step.deliver_ms_p99 > P99_MS_MAX),
    )
    gave = [name for name, is_so in signs if is_so]
    if not gave:
        return None
    wanting = " for want of CPU" if step.machine_percent > MACHINE_PERCENT_MAX else ""
    return " and ".join(gave) + wanting


@dataclass(frozen=True, slots=True)
class Run:
    """A completed tier: all clients have ended."""

    tier: Tier
    crew: Crew
    watch: Watch
    steps: Sequence[Step]
    not_committed: int

    def measures(self) -> list[Measure]:
        """Return the measures, promises first."""
        acknowledged = float(sum(one.sent - len(one.refused) for one in self.crew.produced))
        found = [yardstick(RECORDS, [acknowledged], "records", tier=self.tier.name), *self._promises(acknowledged)]
        found += self._pace()
        if self.tier.steps_max > 1:
            found += self._limit()
        if self.tier.retention_share is not None:
            found += self._growth()
        return found

    def _promises(self, acknowledged: float) -> list[Measure]:
        verdict, crew = self.crew.verdict(), self.crew
        refused = sum(len(one.refused) for one in crew.produced)
        counts: dict[str, tuple[int, dict[str, Any]]] = {
            "lost": (verdict.lost, {}),
            "stored_twice": (verdict.stored_twice, {}),
            "delivered_again": (verdict.delivered_again, {"rebalances": crew.churns}),
            "reordered": (verdict.reordered, {}),
            "damaged": (crew.damaged + verdict.strange, {"examples": crew.examples[:3]} if crew.examples else {}),
            "not_committed": (self.not_committed, {}),
        }
        if self.tier.steps_max == 1:  # a climbing tier may have rejected records at its end
            counts["refused"] = (refused, {"errors": dict(crew.errors)} if crew.errors else {})
        return [
            compared(f"kafka_load_{name}", [float(count)], "records", RECORDS, [acknowledged], value_max=0, **details)
            for name, (count, details) in counts.items()
        ]

    def _pace(self) -> list[Measure]:
        """Return the measures of the last step without an exceeded limit, or of the first."""
        step = next((step for step in reversed(self.steps) if what_gave(step) is None), self.steps[0])
        due, core, linger_ms = [step.due_per_s], [100.0], [self.tier.linger_ms]
        rate_min = RATE_SHARE_MIN if self.tier.steps_max == 1 else None
        clients = {"producers": step.producers, "consumers": step.consumers}
        found = [
            yardstick(DUE, due, "records/s"),
            compared("kafka_load_rate", [step.sent_per_s], "records/s", DUE, due, ratio_min=rate_min, **clients),
            yardstick(LINGER, linger_ms, "ms"),
        ]
        found += [
            compared(f"kafka_load_{name}", [asdict(step)[name]], "ms", LINGER, linger_ms)
            for name in ("ack_ms_p99", "deliver_ms_p50", "deliver_ms_p99")
        ]
        found.append(yardstick(CORE, core, "%"))
        found.append(compared("kafka_load_machine_cpu", [step.machine_percent], "%", CORE, core))
        if self.watch.servers.pids:
            mb = round(step.resident_mb)
            found.append(compared("kafka_load_broker_cpu", [step.broker_percent], "%", CORE, core, resident_mb=mb))
        return found

    def _limit(self) -> list[Measure]:
        """Return the highest rate without an exceeded limit, and the limit that was exceeded then."""
        held = [step.due_per_s for step in self.steps if what_gave(step) is None] or [0.0]
        gave = what_gave(self.steps[-1]) or "nothing: it was not enough"
        steps = [{name: round(value, 1) for name, value in asdict(step).items()} for step in self.steps]
        first = [self.steps[0].due_per_s]
        return [
            yardstick(FIRST, first, "records/s"),
            compared("kafka_load_limit", [max(held)], "records/s", FIRST, first, gave=gave, steps=steps),
        ]

    def _growth(self) -> list[Measure]:
        """Compare the last tenth of the time with a tenth after everything had settled."""
        found = []
        watched = {"memory": ("MB", self.watch.resident_mb), "descriptors": ("files", self.watch.descriptors)}
        watched |= {"files": ("files", self.watch.files), "internal_files": ("files", self.watch.internal_files)}
        for name, (unit, values) in watched.items():
            early = [statistics.median(self.watch.between(values, SETTLE_SHARE, SETTLE_SHARE + WINDOW_SHARE))]
            late = [statistics.median(self.watch.between(values, 1 - WINDOW_SHARE, 1))]
            of = f"{name} at the beginning"
            if early[0] > 0:
                found += [yardstick(of, early, unit)]
                found += [compared(f"kafka_load_{name}", late, unit, of, early, ratio_max=GROWTH_MAX)]
        return found
