"""Layout of the live views: values in, rich renderables out."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from seaweedmq.cli.fields import topic_status
from seaweedmq.model.broker import ETCD_OK, BrokerStatus, ClusterStatus, Decision, DecisionKind
from seaweedmq.model.description import SegmentStats, TopicDescription
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic

DECISIONS_SHOWN_MAX = 8
SEGMENTS_SHOWN_MAX = 24
"""Maximum number of rows of the legend: the segments with the highest rates."""
COLORS = ("red", "green", "yellow", "blue", "magenta", "cyan", "bright_red", "bright_green", "bright_yellow")
KIND_STYLES: Mapping[str, str] = {
    DecisionKind.SPLIT: "green",
    DecisionKind.MERGE: "cyan",
    DecisionKind.MOVE: "yellow",
    DecisionKind.REPAIR: "magenta",
    DecisionKind.SEAL: "blue",
    DecisionKind.HOLD: "bold red",
}
FULL_CPU_SHARE = 0.9


def cluster_view(status: ClusterStatus, now_us: int) -> RenderableType:
    """Return the view of the brokers with their load, and of the leader's last decisions."""
    lacking, broken = status.under_replicated_segments, status.unrecoverable_segments
    head = Text.assemble(
        ("cluster", "bold"),
        f"  {_count(len(status.brokers), 'broker')}, {_count(status.topics, 'topic')}, "
        f"{_count(status.open_segments, 'open segment')}",
        (f", {lacking:,} of them under-replicated" if lacking else "", "bold red"),
        (f", {broken:,} cannot be recovered: see topic describe" if broken else "", "bold red"),
        ("" if status.etcd == ETCD_OK else f"\netcd  {status.etcd}", "bold red"),
    )
    return Group(head, Text(), _brokers(status.brokers), Text(), _decisions(status.decisions, now_us))


def _brokers(brokers: Sequence[BrokerStatus]) -> Table:
    table = _table("broker", "address", "state")
    for column in ("CPU", "memory", "bytes/s", "records/s", "segments"):
        table.add_column(column, justify="right", no_wrap=True)
    for broker in sorted(brokers, key=lambda b: b.info.address):
        load = broker.load
        state = "draining" if broker.info.draining else "leader" if broker.is_leader else ""
        figures = ["-"] * 4
        if load is not None:
            figures = [
                f"{load.cpu_share:.0%}",
                f"{load.memory_bytes / (1 << 20):,.0f} MiB",
                _bytes_per_s(sum(s.bytes_per_s for s in load.segments)),
                f"{sum(s.records_per_s for s in load.segments):,.0f}",
            ]
        busy = load is not None and load.cpu_share >= FULL_CPU_SHARE
        cpu = Text(figures[0], style="bold red" if busy else "")
        name = Text(broker.info.id, style="bold" if broker.is_leader else "")
        table.add_row(name, broker.info.address, state, cpu, *figures[1:], str(broker.open_segments))
    return table


def topic_view(
    found: TopicDescription, stats: Iterable[SegmentStats], decisions: Sequence[Decision], now_us: int, width: int
) -> RenderableType:
    """Return the view of a topic: its ring as a bar of ``width`` cells with a legend, rates, and decisions about it."""
    rates = {s.segment: s for s in stats}
    open_segments = sorted((s for s in found.segments if s.is_open), key=lambda s: s.slots)
    colors = colors_of(open_segments)
    about = [d for d in decisions if d.topic == found.topic.name]
    status = topic_status(found, about)
    return Group(
        Text.assemble((str(found.topic.name), "bold"), f"  {_settings(found.topic)}"),
        Text.assemble("status  ", (status, "green" if status == "ok" else "bold red")),
        Text(
            f"{_count(len(open_segments), 'open segment')}, "
            f"{_bytes_per_s(sum(s.bytes_per_s for s in rates.values()))}, "
            f"{sum(s.records_per_s for s in rates.values()):,.0f} records/s"
        ),
        Text(),
        ring_bar(found.topic.ring, open_segments, colors, width),
        Text(),
        *_legend(found, open_segments, colors, rates),
        Text(),
        _decisions(about, now_us),
    )


def colors_of(open_segments: Sequence[Segment]) -> dict[int, str]:
    """Return a stable color for each segment, by its id unless its neighbor in ring order has the same."""
    colors: dict[int, str] = {}
    before = ""
    for segment in open_segments:
        color = COLORS[segment.id % len(COLORS)]
        if color == before:
            color = COLORS[(segment.id + 1) % len(COLORS)]
        colors[segment.id] = before = color
    return colors


def ring_bar(ring: KeyRange, open_segments: Sequence[Segment], colors: Mapping[int, str], width: int) -> Text:
    """Return one line of ``width`` cells for the ring; each segment begins with a line, and its id if there is room.

    A segment has as many cells as its share of the slots and one more, so that the narrowest, which may have the
    highest load, is visible. Segments are hidden only if there are more of them than cells.
    """
    extra = 1 if len(open_segments) <= width else 0
    shared = width - extra * len(open_segments)

    def cell(slot: int) -> int:
        return round(slot * shared / ring.width)

    bar = Text(no_wrap=True, overflow="crop")
    for segment in open_segments:
        cells = cell(segment.slots.hi) - cell(segment.slots.lo) + extra
        label = str(segment.id)
        text = f"▏{label}" if cells > len(label) else "▏"
        bar.append(text[:cells].ljust(cells), style=f"black on {colors[segment.id]}")
    return bar


def _legend(
    found: TopicDescription,
    open_segments: Sequence[Segment],
    colors: Mapping[int, str],
    rates: Mapping[int, SegmentStats],
) -> list[RenderableType]:
    def rate(segment: Segment) -> float:
        return rates[segment.id].bytes_per_s if segment.id in rates else 0.0

    busiest = {s.id for s in sorted(open_segments, key=rate, reverse=True)[:SEGMENTS_SHOWN_MAX]}
    table = _table("", "segment", "slots")
    for column in ("share", "bytes/s", "records/s", "end"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("primary", no_wrap=True)
    for segment in open_segments:
        if segment.id not in busiest:
            continue
        live = rates.get(segment.id)
        figures = ["-"] * 3
        if live is not None:
            figures = [_bytes_per_s(live.bytes_per_s), f"{live.records_per_s:,.0f}", f"{live.high_watermark:,}"]
        table.add_row(
            Text("██", style=colors[segment.id]),
            str(segment.id),
            str(segment.slots),
            f"{segment.slots.width / found.topic.ring.width:.1%}",
            *figures,
            found.addresses.get(segment.primary, segment.primary),
        )
    hidden = len(open_segments) - len(busiest)
    return [table, *([Text(f"and {_count(hidden, 'segment')} with lower rates", style="dim")] if hidden else [])]


def _settings(topic: Topic) -> str:
    targets = []
    if topic.target_bytes_per_s is not None:
        targets.append(_bytes_per_s(topic.target_bytes_per_s))
    if topic.target_records_per_s is not None:
        targets.append(f"{topic.target_records_per_s:,.0f} records/s")
    aim = f", {' and '.join(targets)} per segment" if targets else ""
    return f"{topic.durability.value}, {_count(topic.replicas, 'replica')}, scaling {topic.scaling.value}{aim}"


def _decisions(decisions: Sequence[Decision], now_us: int) -> RenderableType:
    """Return the last decisions, newest first."""
    if not decisions:
        return Text("no decisions of this leader yet", style="dim")
    table = _table("decided", "what", "segments")
    table.add_column("because")
    for decision in reversed(decisions[-DECISIONS_SHOWN_MAX:]):
        table.add_row(
            f"{_age(now_us - decision.at_us)} ago",
            Text(decision.kind, style=KIND_STYLES.get(decision.kind, "")),
            f"{decision.topic}#{','.join(map(str, decision.segments))}",
            Text(decision.reason),  # no markup: it may hold any text
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _bytes_per_s(rate: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if rate >= size:
            return f"{rate / size:,.1f} {unit}/s"
    return f"{rate:,.0f} B/s"


def _age(us: int) -> str:
    seconds = max(0, us // 1_000_000)
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
