"""The table of the README: a row per claim, a column per system, and SeaweedMQ's lead over each of the others."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.contest.results import Results
from benchmarks.contest.systems import OURS, SYSTEMS, Way

BEGIN = "<!-- peers: written by `python -m benchmarks.peers --markdown FILE` -->"
END = "<!-- end of peers -->"
ANY_CALL = ("",)
"""The only call of measures with one way per system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one measure, of each system by its best call for ``way``."""

    measure: str
    way: Way | None = None
    figure: str = "records_per_s"
    unit: str = "records/s"
    more_is_better: bool = True
    title: str = ""
    """Title, if not that of ``measure`` and ``way``."""

    @property
    def name(self) -> str:
        """Text of the first cell."""
        title = self.title or ", ".join(filter(None, (self.measure, self.way)))
        return f"{title}, {self.unit}"


@dataclass(frozen=True, slots=True)
class Cell:
    """The best call of a system in a row, and its figure in each round."""

    call: str
    by_turn: Mapping[int, float]
    among: int
    """Number of calls it was chosen from."""

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.by_turn.values())


def _cost(measure: str, figure: str, unit: str, title: str, way: Way | None = None) -> Row:
    return Row(measure=measure, way=way, figure=figure, unit=unit, more_is_better=False, title=title)


def _cpu(measure: str, way: Way) -> tuple[Row, Row]:
    title = f"CPU of the {{}}, {measure}, {way}"
    return (
        _cost(measure, "client_cpu_s_per_gb", "s/GB", title.format("client"), way),
        _cost(measure, "server_cpu_s_per_gb", "s/GB", title.format("servers"), way),
    )


ROWS = (
    Row(measure="publish 100 B", way=Way.ONE_BY_ONE),
    Row(measure="publish 100 B", way=Way.STORED_ONCE),
    Row(measure="publish 100 B", way=Way.AT_ONCE),
    Row(measure="publish 100 B keyed", way=Way.ONE_BY_ONE, title="publish 100 B, keyed, 4 partitions"),
    Row(measure="publish 1 KB", way=Way.ONE_BY_ONE),
    Row(measure="publish 1 KB", way=Way.STORED_ONCE),
    Row(measure="publish 1 KB", way=Way.AT_ONCE),
    Row(measure="consume 100 B", way=Way.BY_MESSAGE),
    Row(measure="consume 100 B", way=Way.BY_BATCH),
    Row(measure="consume 1 KB", way=Way.BY_MESSAGE),
    Row(measure="consume 1 KB", way=Way.BY_BATCH),
    _cost("latency", "p50_ms", "ms", "due to delivered at 10,000 records/s, p50"),
    _cost("latency", "p99_ms", "ms", "due to delivered at 10,000 records/s, p99"),
    Row(measure="durable publish", way=Way.ONE_BY_ONE, title="publish 100 B, fsynced before the acknowledgement"),
    _cost("durable latency", "p50_ms", "ms", "fsynced, due to delivered at 1,000 records/s, p50"),
    _cost("durable latency", "p99_ms", "ms", "fsynced, due to delivered at 1,000 records/s, p99"),
    _cost("topics", "create_s", "s", "create 200 topics"),
    _cost("topics", "server_cpu_percent", "% of a core", "200 topics, a record a second each: CPU of the servers"),
    _cost("topics", "client_cpu_percent", "% of a core", "200 topics, a record a second each: CPU of the client"),
    _cost("startup", "first_record_s", "s", "start of the server to the first acknowledged record"),
    _cost("publish 1 KB", "server_rss_mb", "MB", "memory of the servers, publish 1 KB one by one", Way.ONE_BY_ONE),
    *_cpu("publish 1 KB", Way.ONE_BY_ONE),
    *_cpu("publish 1 KB", Way.AT_ONCE),
    *_cpu("consume 1 KB", Way.BY_MESSAGE),
)


def markdown(results: Results) -> str:
    """Return the text between the marks: the run, the table, and the absent systems.

    Rows without any figure are left out; rows in which SeaweedMQ is behind are not.
    """
    others = [name for name in SYSTEMS if name in results.versions and name != OURS]
    rows = [_cells(row, others, results) for row in ROWS if any(_cell(row, name, results) for name in SYSTEMS)]
    head = ["measure", SYSTEMS[OURS].title]
    for name in others:
        head += [SYSTEMS[name].title, "ahead"]
    lines = [head, ["---"] * len(head), *rows]
    notes = [f"{SYSTEMS[name].title} did not take part: {reason}." for name, reason in results.skipped.items()]
    notes += [
        f"Failed: {SYSTEMS[one.system].title}, {one.suite}, round {one.turn}: {one.error}" for one in results.failures
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([_caption(results), table, *notes])


def put(text: str, table: str) -> str:
    """Return the text with ``table`` between the marks. Raises ValueError if it lacks them."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"there is no {BEGIN} with an {END} behind it")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _caption(results: Results) -> str:
    rounds = max((sample.turn for sample in results.samples), default=0)
    what = "A quick run, which shows that it works and not how fast" if results.quick else "Medians"
    versions = "; ".join(results.versions.values())
    return (
        f"{what}; rounds in turns: {rounds}, the lowest and the highest in brackets. {versions}. "
        f"{results.date}, {results.machine}. "
        "Of several calls the best counts. "
        "*Ahead* is how many times better SeaweedMQ is than the one to the left; below 1 it is behind."
    )


def _cells(row: Row, others: Sequence[str], results: Results) -> list[str]:
    """Return SeaweedMQ's cell, then each of the others with SeaweedMQ's lead."""
    ours = _cell(row, OURS, results)
    cells = [row.name, _shown(ours)]
    for name in others:
        theirs = _cell(row, name, results)
        cells += [_shown(theirs), _ahead(row, ours, theirs)]
    return cells


def _cell(row: Row, name: str, results: Results) -> Cell | None:
    calls = ANY_CALL if row.way is None else SYSTEMS[name].calls.get(row.way, ())
    found = {call: results.by_turn(name, row.measure, call, row.figure) for call in calls}
    cells = [Cell(call, by_turn, len(calls)) for call, by_turn in found.items() if by_turn]
    best = max if row.more_is_better else min
    return best(cells, key=lambda cell: cell.median, default=None)


def _ahead(row: Row, ours: Cell | None, theirs: Cell | None) -> str:
    """Return the median of the ratios within a round, whose two sides ran under the same conditions.

    A zero is not compared: processor time is counted in hundredths of a second, so little work takes none.
    """
    if ours is None or theirs is None:
        return "-"
    pairs = [(ours.by_turn[turn], theirs.by_turn[turn]) for turn in ours.by_turn.keys() & theirs.by_turn.keys()]
    ratios = [a / b if row.more_is_better else b / a for a, b in pairs if a and b]
    if not ratios:
        return "-"
    ahead = statistics.median(ratios)
    return f"{ahead:.2f}" if ahead >= 1 else f"**{ahead:.2f}**"


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    low, high = min(cell.by_turn.values()), max(cell.by_turn.values())
    spread = "" if low == high else f" ({_short(low)}..{_short(high)})"
    return _short(cell.median) + spread + (f" `{cell.call}`" if cell.among > 1 else "")


def _short(value: float) -> str:
    """Format with three significant digits."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"
