"""Tests of the table of promises in deploy/README.md: every kind of failure has a row, and its tests exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "deploy" / "README.md"
NAME = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
KINDS = ("broker", "brokers", "leader", "etcd:", "storage:", "network:", "clock", "descriptors", "memory:", "clients:")


def rows() -> list[list[str]]:
    """Return the cells of the table's rows, without its head."""
    section = README.read_text().split("## What is promised", 1)[1].split("\n## ", 1)[0]
    found = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return found[1:]


def test_every_row_names_tests_that_exist() -> None:
    wrong = []
    for row in rows():
        assert len(row) == 5, row
        named = NAME.findall(row[4])
        if not named:
            wrong.append(f"{row[0]}: {row[4]}")
        for path, test in named:
            file = ROOT / path
            defined = rf"^(async )?def {test}\("
            if not file.is_file() or (test and not re.search(defined, file.read_text(), re.MULTILINE)):
                wrong.append(f"{row[0]}: {path}::{test} does not exist")
    assert not wrong, wrong


def test_every_kind_of_failure_has_a_row() -> None:
    failures = " ".join(row[0] for row in rows())
    assert [kind for kind in KINDS if kind not in failures] == []
