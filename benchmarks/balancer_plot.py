"""A picture of the balancer's day."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.balancer_day import (
    FLOOD_AT_S,
    FLOOD_S,
    LOSS_AT_S,
    RECOVERED,
    RESTART_AT_S,
    RESTART_EACH_S,
    Day,
    kind_of,
)

HOUR_S = 3_600.0
COLORS = {"split": "tab:red", "merge": "tab:green", "move": "tab:blue"}


def plot_day(day: Day, path: Path) -> None:
    """Write a PNG: traffic and segments, imbalance, and changes, over the hours."""
    figure = Figure(figsize=(12, 8), layout="constrained")
    FigureCanvasAgg(figure)
    traffic, imbalance, changes = figure.subplots(3, 1, sharex=True)
    hours = [sample.at_s / HOUR_S for sample in day.samples]
    traffic.plot(hours, [sample.bytes_per_s / 1e9 for sample in day.samples], color="tab:blue")
    traffic.set_ylabel("published, GB/s", color="tab:blue")
    traffic.set_ylim(bottom=0)
    segments = traffic.twinx()
    segments.plot(hours, [sample.segments for sample in day.samples], color="tab:red", linewidth=1)
    segments.set_ylabel("open segments", color="tab:red")
    segments.set_ylim(bottom=0)
    imbalance.plot(hours, [sample.imbalance for sample in day.samples], color="black", linewidth=0.8)
    imbalance.axhline(RECOVERED, color="grey", linestyle=":")
    imbalance.set_ylabel("most loaded broker / mean")
    imbalance.set_ylim(1, 3)
    _changes(changes, day)
    for axes in (traffic, imbalance, changes):
        axes.axvspan(FLOOD_AT_S / HOUR_S, (FLOOD_AT_S + FLOOD_S) / HOUR_S, color="tab:red", alpha=0.1)
        axes.axvline(LOSS_AT_S / HOUR_S, color="black", linestyle="--", linewidth=0.8)
        restarted_s = RESTART_AT_S + day.brokers * RESTART_EACH_S
        axes.axvspan(RESTART_AT_S / HOUR_S, restarted_s / HOUR_S, color="tab:orange", alpha=0.1)
    traffic.set_title(
        f"{day.brokers} brokers: a flood (red), the loss of a broker (dashed), a rolling restart (orange)"
    )
    figure.savefig(path, dpi=100)


def _changes(axes: Axes, day: Day) -> None:
    for kind, color in COLORS.items():
        times = [at_s / HOUR_S for at_s, action in day.actions if kind_of(action) == kind]
        steps = list(range(1, len(times) + 1))
        axes.step([0, *times, 24], [0, *steps, len(times)], where="post", color=color, label=f"{kind}: {len(times)}")
    axes.set_ylabel("changes so far")
    axes.set_yscale("symlog", linthresh=10)
    axes.set_xlabel("hour of the day")
    axes.set_xticks(range(0, 25, 2))
    axes.legend(loc="upper left")
