"""`seaweedmq table`: errors before Spark starts, and results as a table or as JSON."""

import contextlib
import importlib.metadata
import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from seaweedmq.codec.paths import table_dir
from seaweedmq.model.files import FileKind
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.tables.delta.updater import reconcile
from tests.cli.test_usage import Here
from tests.cli.test_usage import here as here
from tests.support.commands import COMMAND, SeveralRun, run, several
from tests.support.topic_files import TopicFiles

WITHOUT_SPARK = """
import importlib.metadata
import sys

for module in ("pyspark", "py4j", "deltalake", "pyiceberg"):
    sys.modules[module] = None
installed = importlib.metadata.version

def version(name):
    if name == "pyspark":
        raise importlib.metadata.PackageNotFoundError(name)
    return installed(name)

importlib.metadata.version = version
"""


@pytest.fixture
def orders(tmp_path: Path) -> TopicFiles:
    return TopicFiles(tmp_path)


@pytest.fixture(scope="module")
def run_several() -> Iterator[SeveralRun]:
    with several() as run_all:
        yield run_all


@pytest.mark.parametrize("command", ["compact", "verify", "rebuild", "history"])
def test_the_storage_is_what_up_made_in_this_folder_or_named_once_or_in_the_environment(
    here: Here, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("SEAWEEDMQ_STORAGE", raising=False)
    monkeypatch.chdir(tmp_path)
    done = here.run("table", command, "shop/orders")
    assert done.status == 2
    assert "there is no seaweedmq-data/storage here: give the root that the brokers use" in done.stderr
    (tmp_path / "seaweedmq-data" / "storage").mkdir(parents=True)
    done = here.run("table", command, "shop/orders")
    assert (done.status, done.error) == (1, f"error: no topic shop/orders in {tmp_path}/seaweedmq-data/storage")
    monkeypatch.setenv("SEAWEEDMQ_STORAGE", str(tmp_path / "nowhere"))
    error = here.run("table", command, "shop/orders").failure
    assert "nowhere is not a directory: give the root that the brokers use" in error


def test_spark_needs_a_line(here: Here, orders: TopicFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = ("table", "compact", "shop/orders", "--storage", str(orders.root))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    error = here.run(*command).failure
    assert error.startswith(f"error: Spark needs Java 17 or newer, and JAVA_HOME is {tmp_path}/no-java: install")
    installed = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.5.1" if name == "pyspark" else installed(name))
    remedy = "needs PySpark 4.1 or newer, 3.5.1 is installed: pip install 'seaweedmq[spark]' --upgrade"
    assert here.run(*command).error.endswith(remedy)


def test_without_pyspark_the_remedy_is_named_and_the_history_is_shown(orders: TopicFiles, tmp_path: Path) -> None:
    orders.table(0, 20)
    reconcile(DirectoryPlace(orders.root), orders.topic)
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_SPARK)
    storage = ("--storage", str(orders.root))
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    for command in ("compact", "verify", "rebuild", "import"):
        paths = ["rows.parquet"] if command == "import" else []
        done = run("table", command, "shop/orders", *paths, *storage, env={"PYTHONPATH": path})
        assert (done.status, done.error) == (
            1,
            "error: seaweedmq.spark needs PySpark 4.1 or newer, which is not installed: pip install 'seaweedmq[spark]'",
        )
    history = ("table", "history", "shop/orders", *storage, "--master", "local[1]", "--output", "json")
    done = run(*history, env={"PYTHONPATH": path})
    assert (done.status, done.stderr) == (0, "")
    assert [version["records"] for version in json.loads(done.text)] == [20]
    export = ("table", "export", "shop/orders", "--iceberg", "sqlite:///x.db", *storage)
    assert 'pip install "seaweedmq[iceberg]"' in run(*export, env={"PYTHONPATH": path}).failure


def test_options_that_make_no_sense_are_wrong_usage(here: Here, orders: TopicFiles) -> None:
    storage = ("--storage", str(orders.root))
    assert here.run("table", "compact", "shop/orders", *storage, "--target", "large").status == 2
    assert here.run("table", "import", "shop/orders", "x.xml", *storage, "--format", "xml").status == 2
    assert here.run("table", "export", "shop/orders", *storage).status == 2


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.timeout(300)
def test_tables_are_compacted_and_verified_and_a_difference_ends_with_status_1(orders: TopicFiles) -> None:
    for n in range(0, 80, 20):
        orders.table(n, n + 20)
    storage = ("--storage", str(orders.root))
    done = run("table", "compact", "shop/orders", *storage, "--master", "local[1]")
    assert (done.status, done.stderr) == (0, "")
    assert done.text == "shop/orders had 4 tables and has 1: 4 were merged into 1\n"
    (table,) = (f for f in orders.files() if f.kind is FileKind.TABLE)
    path = orders.root / table.path
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    done = run("table", "verify", "shop/orders", *storage, "--master", "local[1]", "--output", "json")
    assert (done.status, done.error) == (1, f"error: 1 files of shop/orders differ, the first is {table.path}")
    found = json.loads(done.text)
    assert (found["is_sound"], [d["path"] for d in found["differences"]]) == (False, [table.path])


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_a_damaged_delta_log_is_named_and_made_again_from_tables(orders: TopicFiles, run_several: SeveralRun) -> None:
    for n in range(0, 80, 20):
        orders.table(n, n + 20)
        reconcile(DirectoryPlace(orders.root), orders.topic)
    folder = orders.root / table_dir(orders.name)
    (folder / "_delta_log" / f"{1:020d}.json").write_bytes(b"{not what was written")
    strange = {"notes.parquet": b"mine", ".tmp-9-9": b"PAR1 half", "part-00000.snappy.parquet": b"PAR1"}
    for name, content in strange.items():
        (folder / name).write_bytes(content)
    storage = ("shop/orders", "--storage", str(orders.root))
    spark = (*storage, "--master", "local[1]", "--output", "json")
    damaged, rebuilt, verified, compacted, versions = run_several(
        ("table", "history", *storage),
        ("table", "rebuild", *spark),
        ("table", "verify", *spark),
        ("table", "compact", *spark),
        ("table", "history", *storage, "--output", "json"),
    )
    assert (damaged.status, damaged.stdout) == (1, b"")
    assert "_delta_log cannot be read" in damaged.error
    assert "`seaweedmq table rebuild shop/orders`" in damaged.error
    assert [done.status for done in (rebuilt, verified, compacted, versions)] == [0] * 4
    left = [name for name in strange if not name.startswith(".")]
    assert rebuilt.stderr.splitlines() == [
        f"foreign file ignored: {folder / name} is not a file of SeaweedMQ; move it away" for name in left
    ]
    assert [done.stderr for done in (verified, compacted, versions)] == [""] * 3
    assert (json.loads(rebuilt.text)["problems"], json.loads(rebuilt.text)["delta_version"]) == ([], 0)
    found = json.loads(verified.text)
    assert (found["is_sound"], found["records"], found["tables"]) == (True, 80, 4)
    assert json.loads(compacted.text)["tables_after"] == 1
    assert [(version["version"], version["records"]) for version in json.loads(versions.text)] == [(1, 80), (0, 80)]
    assert {name: (folder / name).read_bytes() for name in strange} == strange
    assert len(list(folder.glob(".delta_log-aside-*"))) == 1


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_deleted_and_damaged_tables_are_made_again_from_logs(orders: TopicFiles, run_several: SeveralRun) -> None:
    deleted, damaged = (orders.table(n, n + 20, keep_log=True) for n in (0, 20))
    orders.table(40, 60)
    (orders.root / deleted.path).unlink()
    (orders.root / damaged.path).write_bytes(b"PAR1 is not enough PAR1")
    spark = ("shop/orders", "--storage", str(orders.root), "--master", "local[1]")
    rebuilt, verified, again = run_several(
        ("table", "rebuild", *spark),
        ("table", "verify", *spark, "--output", "json"),
        ("table", "rebuild", *spark, "--output", "json"),
    )
    assert (rebuilt.status, rebuilt.stderr) == (0, "")
    assert rebuilt.text == "shop/orders: 2 tables were rebuilt, 1 of them to replace damaged ones\n"
    found = json.loads(verified.text)
    assert (verified.status, found["is_sound"], found["records"], found["compared"]) == (0, True, 60, 40)
    assert (again.status, json.loads(again.text)["made"]) == (0, [])


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.timeout(300)
def test_the_first_difference_of_a_log_and_a_table_is_named_below_a_bar_on_a_terminal(orders: TopicFiles) -> None:
    table = orders.table(0, 40, keep_log=True)
    orders.write_again(table, "_value", 31, b"later")
    orders.write_again(table, "_key", 7, b"other")
    arguments = ("table", "verify", "shop/orders", "--storage", str(orders.root), "--master", "local[1]")
    status, stdout, drawn = on_a_terminal(*arguments)
    assert status == 1
    head, row = stdout.splitlines()
    assert head.split() == ["path", "offset", "column", "difference"]
    assert row.split(maxsplit=3)[:3] == [table.path, "7", "_key"]
    assert "b'other', but b'k7'" in row
    assert f"error: 1 files of shop/orders differ, the first is {table.path}" in drawn
    assert "verify shop/orders" in drawn
    assert "0.0 MiB" in drawn, "less than a MiB in all"
    assert "━" * 30 in drawn, "the whole bar, in the end"


def on_a_terminal(*arguments: str) -> tuple[int, str, str]:
    """Return exit status, stdout, which is a pipe, and the output drawn on stderr."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=slave, env=environment) as process:
        os.close(slave)
        drawn = b""
        with contextlib.suppress(OSError):  # the process has closed its terminal
            while part := os.read(master, 65_536):
                drawn += part
        stdout, _ = process.communicate()
    os.close(master)
    return process.returncode, stdout.decode(), drawn.decode()
