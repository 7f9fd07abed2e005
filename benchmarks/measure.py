"""A measurement: value, spread, yardstick, and whether it reaches its target."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Samples = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of the report."""

    name: str
    value: float
    """Median over the rounds."""
    unit: str
    of: str
    """The yardstick, measured in the same run; for a yardstick its own name."""
    ratio: float
    """Ratio of the value to the yardstick: the median over the rounds of the ratio within a round, whose two sides ran
    under the same conditions. It may differ a little from the ratio of the medians."""
    spread: tuple[float, float] | None = None
    """Lowest and highest round."""
    target: str | None = None
    met: bool | None = None
    """Whether the target is reached; None without a target."""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the object under ``name`` in the report."""
        result: dict[str, Any] = {
            "value": _rounded(self.value),
            "unit": self.unit,
            "of": self.of,
            "ratio": _rounded(self.ratio),
        }
        if self.spread is not None:
            result["spread"] = [_rounded(bound) for bound in self.spread]
        if self.target is not None:
            result |= {"target": self.target, "met": self.met}
        return result | dict(self.details)


def yardstick(name: str, samples: Samples, unit: str, **details: Any) -> Measure:
    """Return a figure of the machine, a yardstick for others."""
    return Measure(
        name=name,
        value=statistics.median(samples),
        unit=unit,
        of=name,
        ratio=1.0,
        spread=(min(samples), max(samples)),
        details=details,
    )


def compared(
    name: str,
    samples: Samples,
    unit: str,
    of: str,
    yardsticks: Samples,
    *,
    ratio_min: float | None = None,
    value_min: float | None = None,
    value_max: float | None = None,
    ratio_max: float | None = None,
    **details: Any,
) -> Measure:
    """Compare a figure of SeaweedMQ with its yardstick, round by round, with at most one target.

    Args:
        samples, yardsticks: One of each per round, in the order of the rounds.
    """
    value = statistics.median(samples)
    ratio = statistics.median(ours / theirs for ours, theirs in zip(samples, yardsticks, strict=True))
    target: str | None = None
    met: bool | None = None
    if ratio_min is not None:
        target, met = f"ratio >= {ratio_min:g}", ratio >= ratio_min
    elif ratio_max is not None:
        target, met = f"ratio <= {ratio_max:g}", ratio <= ratio_max
    elif value_min is not None:
        target, met = f">= {value_min:,.0f} {unit}", value >= value_min
    elif value_max is not None:
        target, met = f"<= {value_max:g} {unit}", value <= value_max
    return Measure(
        name=name,
        value=value,
        unit=unit,
        of=of,
        ratio=ratio,
        spread=(min(samples), max(samples)),
        target=target,
        met=met,
        details=details,
    )


def interleaved(
    contestants: Mapping[str, Callable[[], float]], rounds: int, *, warm_up: bool = True
) -> dict[str, list[float]]:
    """Run every contestant once a round, after one round that does not count, unless in a hurry.

    The order rotates by one each round, so that no contestant always runs after the same other. On a shared machine
    two figures are comparable only if they were taken close to each other, many times.
    """
    names = list(contestants)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(0 if warm_up else 1, rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            sample = contestants[name]()
            if number:
                samples[name].append(sample)
    return samples


def percentile(sorted_values: Samples, share: float) -> float:
    """Return the value below which ``share`` (0 to 1) of all lie, of values in ascending order, at least one."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def _rounded(value: float) -> float:
    """Round to four significant digits, above the precision of a run."""
    return float(f"{value:.4g}")
