"""`seaweedmq table import` into a real cluster: every row of a good file arrives, and no row of a bad one."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import seaweedmq
from tests.support.commands import Done, SeveralRun, running_cluster, several

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

COUNT = 5_000
FIRST = 10_000_000_000
"""Above 32 bits: for smaller numbers in CSV Spark infers 32 bits."""
ROWS = pa.table(
    {
        "id": pa.array(range(FIRST, FIRST + COUNT), pa.int64()),
        "name": [f"name {number % 10}" for number in range(COUNT)],
        "price": [number / 4 for number in range(COUNT)],
    }
)


@dataclass(frozen=True)
class Target:
    """A cluster, and commands with its address."""

    storage: Path
    bootstrap: str
    client: seaweedmq.Client
    run_several: SeveralRun

    def imports(self, *commands: tuple[str, ...]) -> list[Done]:
        """Run `table import` with each of these arguments, in the one process of this module, without a terminal."""
        given = ("--storage", str(self.storage), "--bootstrap", self.bootstrap, "--master", "local[2]")
        return self.run_several(*(("table", "import", *command, *given) for command in commands))

    def table(self, topic: str) -> pa.Table:
        """Return all records."""
        with self.client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
            batches = list(subscriber.batches())
        return pa.Table.from_batches(batches).sort_by("id") if batches else ROWS.slice(0, 0)

    def staged(self, topic: str) -> list[Path]:
        return [path for path in (self.storage / "topics" / topic / ".staged").rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    data = tmp_path_factory.mktemp("import") / "data"
    with running_cluster(data) as cluster, seaweedmq.connect(cluster.addresses) as client, several() as run_several:
        yield Target(data / "storage", cluster.addresses, client, run_several)


def written(path: Path, rows: pa.Table) -> str:
    """Write a file in the format of its name."""
    if path.suffix == ".parquet":
        pq.write_table(rows, path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(rows, path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()))
    return str(path)


@pytest.mark.deep
def test_a_bad_file_is_one_error_and_nothing_of_it_is_published(target: Target, tmp_path: Path) -> None:
    typed, fresh, other = "import/typed", "import/fresh", "import/other"
    target.client.admin.create_topic(typed, schema=ROWS.schema)
    target.client.admin.create_topics([fresh, other])
    good = written(tmp_path / "good.parquet", ROWS)
    text = tmp_path / "text.parquet"
    text.write_text("words, and no table of any kind\n" * 40)
    half = tmp_path / "half.parquet"
    half.write_bytes(Path(good).read_bytes()[:20_000])
    torn = Path(written(tmp_path / "torn.json", ROWS.slice(0, 100)))
    torn.write_text(torn.read_text().replace(f'"id": {FIRST + 50},', '"id": 5', 1))
    uneven = Path(written(tmp_path / "uneven.csv", ROWS.slice(0, 100)))
    uneven.write_text(uneven.read_text() + '7,"a",1.5,"one too many"\n')
    headers, mixed, empty = (tmp_path / name for name in ("headers", "mixed", "empty"))
    for folder in (headers, mixed, empty):
        folder.mkdir()
    written(headers / "a.csv", ROWS.slice(0, 100))
    written(headers / "b.csv", ROWS.slice(100, 100).select(["price", "name", "id"]))
    written(mixed / "a.parquet", ROWS)
    (mixed / "b.parquet").write_bytes(half.read_bytes())
    texts = {
        "open.csv": (b'id,note\n1,"open\n2,b\n', "open.csv cannot be read as csv: line 2: a quotation mark"),
        "backslash.csv": (
            b'id,note\n1,"say \\"hi\\" to all"\n',
            "line 2, column 2: text follows the closing quotation mark",
        ),
        "latin.csv": (b"id,note\n1,gr\xfc\xdfe\n", "line 2, column 'note' is not UTF-8: save it as UTF-8"),
        "semicolons.csv": (b"id;note\n1;a\n", "one column, 'id;note': give --separator ';'"),
        "_hidden.csv": (b"id,note\n1,a\n", "_hidden.csv, because its name begins with"),
    }
    for name, (content, _) in texts.items():
        (tmp_path / name).write_bytes(content)
    times = {"at": pa.array([1], pa.timestamp("ns")), "when": pa.array([[1]], pa.list_(pa.timestamp("ns")))}
    cases = [
        *(((fresh, str(tmp_path / name), "--format", "csv"), said) for name, (_, said) in texts.items()),
        *(
            (
                (fresh, written(tmp_path / f"{name}.parquet", pa.table({"id": [1], name: values}))),
                f"read: '{name}' (Time",
            )
            for name, values in times.items()
        ),
        ((typed, str(tmp_path / "nowhere.parquet")), "nowhere.parquet"),
        ((typed, str(empty)), f"there are no files to import in {empty}: give files of parquet, or their folder"),
        ((fresh, str(empty), "--format", "csv"), f"there are no files to import in {empty}"),
        ((fresh, str(text)), "text.parquet"),
        ((fresh, str(half)), "half.parquet"),
        ((fresh, str(mixed)), "b.parquet"),
        ((fresh, good, "--format", "json"), "alformed records"),
        ((fresh, str(torn), "--format", "json"), "alformed records"),
        ((fresh, str(uneven), "--format", "csv"), "uneven.csv"),
        ((other, str(headers), "--format", "csv"), "CSV header"),
        ((fresh, good, "--key", "nope"), "option 'key' is 'nope', not a column"),
        (
            (typed, written(tmp_path / "other.parquet", ROWS.rename_columns(["id", "label", "price"]))),
            "column 'label' of the table is not in the topic's schema (id, name, price): drop it",
        ),
        (
            (typed, written(tmp_path / "type.parquet", ROWS.set_column(2, "price", ROWS.column("name")))),
            "column 'price' is string, the topic's schema has double: cast it",
        ),
        (("import/none", good), "no topic import/none in"),
    ]
    for (arguments, said), done in zip(cases, target.imports(*(case[0] for case in cases)), strict=True):
        assert (done.status, done.stdout) == (1, b""), arguments
        assert done.error.startswith("error: "), arguments
        assert said in done.error
        for noise in ("internal", "Traceback", "Exception", "SQLSTATE"):
            assert noise not in done.error
    for topic in (typed, fresh, other):
        assert (len(target.table(topic)), target.staged(topic)) == (0, [])


@pytest.mark.deep
def test_files_that_people_have_arrive_whole(target: Target, tmp_path: Path) -> None:
    """Line breaks in texts, other separators, any file name, and folders that stand for columns."""
    rows = [(1, "plain"), (2, 'Dear all,\r\n"yours", B'), (3, "two\nlines"), (4, "last")]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("id", "note"), *rows])
    odd = tmp_path / "50% #1 x"
    odd.mkdir()
    (odd / "a *b.csv").write_text(text.getvalue(), newline="")
    (odd / "a Xb.csv").write_text("id,note\n5,five\n")
    (tmp_path / "rows [1].json").write_text('{"id": 1, "note": "a"}\n{"id": 2}\n')
    (tmp_path / "rows 1.json").write_text('{"id": 3, "other": 7}\n')
    (tmp_path / "semicolons.csv").write_text(text.getvalue().replace(",", ";"), newline="")
    for day in (1, 2):
        folder = tmp_path / "my sales" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [day * 10, day * 10 + 1]}), folder / "part-0.parquet")
    days = [str(tmp_path / "my sales" / f"day={day}") for day in (1, 2)]
    names = ("odd", "semicolons", "folder", "folders", "typed", "pattern")
    topics = dict(zip(names, (f"import/whole-{name}" for name in names), strict=True))
    target.client.admin.create_topics([topic for name, topic in topics.items() if name != "typed"])
    target.client.admin.create_topic(topics["typed"], schema=pa.schema([("id", pa.int64())]))
    done = target.imports(
        (topics["odd"], str(tmp_path / "50*"), "--format", "csv"),
        (topics["semicolons"], str(tmp_path / "semicolons.csv"), "--format", "csv", "--separator", ";"),
        (topics["folder"], str(tmp_path / "my sales"), "--key", "day", "--output", "json"),
        (topics["folders"], *days),
        (topics["typed"], days[0]),
        (topics["pattern"], str(tmp_path / "rows [1].json"), "--format", "json"),
    )
    assert [(each.status, each.stderr) for each in done] == [(0, "")] * 6
    assert done[0].text == f"imported 5 rows into {topics['odd']}\n"
    assert json.loads(done[2].text) == {"topic": topics["folder"], "rows": 4}
    assert target.table(topics["odd"]).select(["id", "note"]).to_pylist() == [
        {"id": number, "note": note} for number, note in [*rows, (5, "five")]
    ]
    semicolons = target.table(topics["semicolons"]).column("note").to_pylist()
    assert semicolons == [note.replace(",", ";") for _, note in rows]
    for name in ("folder", "folders"):
        table = target.table(topics[name])
        assert (table["id"].to_pylist(), table["day"].to_pylist()) == ([10, 11, 20, 21], [1, 1, 2, 2])
    assert target.table(topics["folder"])["_key"].to_pylist() == [b"1", b"1", b"2", b"2"]
    assert target.table(topics["typed"])["id"].to_pylist() == [10, 11]
    pattern = target.table(topics["pattern"])
    assert pattern.select(["id", "note"]).to_pylist() == [{"id": 1, "note": "a"}, {"id": 2, "note": None}]
    assert "other" not in pattern.column_names
