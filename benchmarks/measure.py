"""What a measurement says: a value, its spread, the yardstick it stands beside, and whether it reaches its target."""

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
    """Of the value to the yardstick: the median over the rounds of the ratio within a round, whose two sides met the
    same weather. It may differ a little from the ratio of the medians."""
    spread: tuple[float, float] | None = None
    """Lowest and highest round."""
    target: str | None = None
    met: bool | None = None
    """Whether the target is reached; None where nothing was promised."""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The object that stands under ``name`` in the report."""
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
    """A figure of the machine, for others to stand beside."""
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
    """A figure of ours beside its yardstick, round by round, with at most one target.

    Args:
        samples, yardsticks: one of each a round, in the order of the rounds.
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

    The order turns by one a round, so that nobody always runs behind the same other. On a machine shared with others
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
    """The value below which ``share`` (0 to 1) of all lie, of values in ascending order, at least one."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def _rounded(value: float) -> float:
    """Four significant digits: what a run can tell is less."""
    return float(f"{value:.4g}")
