"""`seaweedmq table`: what it needs is said before Spark is started, and what it found in a table or as JSON."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from seaweedmq.model.files import FileKind
from tests.cli.test_usage import Here
from tests.cli.test_usage import here as here
from tests.support.commands import run
from tests.support.topic_files import TopicFiles


@pytest.fixture
def orders(tmp_path: Path) -> TopicFiles:
    return TopicFiles(tmp_path)


@pytest.mark.parametrize("command", ["compact", "verify", "rebuild", "history"])
def test_the_storage_has_to_be_named_once_or_in_the_environment(
    here: Here, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SEAWEEDMQ_STORAGE", raising=False)
    assert here.run("table", command, "shop/orders").status == 2
    monkeypatch.setenv("SEAWEEDMQ_STORAGE", str(tmp_path / "nowhere"))
    done = here.run("table", command, "shop/orders")
    assert done.status == 1
    assert "nowhere is not a directory: give the root that the brokers were started with" in done.error


def test_a_topic_that_is_not_there_is_named(here: Here, orders: TopicFiles) -> None:
    done = here.run("table", "verify", "shop/nothing", "--storage", str(orders.root))
    assert (done.status, done.error) == (1, f"error: no topic shop/nothing in {orders.root}")


def test_what_spark_needs_is_said_in_one_line(
    here: Here, orders: TopicFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = ("table", "compact", "shop/orders", "--storage", str(orders.root))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    done = here.run(*command)
    assert done.status == 1
    assert done.error.startswith("error: Spark needs Java 17 or later, and there is none: install one")
    old = ModuleType("pyspark")
    old.__version__ = "3.5.1"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark", old)
    assert here.run(*command).error == "error: PySpark 3.5.1 is too old: pip install 'pyspark>=4.1'"
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert here.run(*command).error == "error: table jobs run on Spark: pip install 'seaweedmq[spark]'"


def test_options_that_make_no_sense_are_wrong_usage(here: Here, orders: TopicFiles) -> None:
    storage = ("--storage", str(orders.root))
    assert here.run("table", "compact", "shop/orders", *storage, "--target", "large").status == 2
    assert here.run("table", "import", "shop/orders", "x.xml", *storage, "--format", "xml").status == 2
    assert here.run("table", "export", "shop/orders", *storage).status == 2


@pytest.mark.integration
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
