"""Tables, fields, JSON and the log show foreign names without interpreting their control characters."""

import json
import logging

import pytest

from seaweedmq.cli.output import Output, note, show_fields, show_rows
from seaweedmq.cli.servers.process import _OneLine

NAME = "a\x1b[31mred\nbilling   kafka \x9b2J\u202e"


def test_a_row_is_one_line_without_escapes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    rows = [{"group": NAME, "members": [NAME], "lags": {NAME: 1}}]
    show_rows(rows, [*rows[0]], Output.TABLE)
    show_fields(rows[0], Output.TABLE)
    show_rows(rows, [*rows[0]], Output.JSON)
    note(f"error: {NAME}")
    shown, noted = (text.decode() for text in capfdbinary.readouterr())
    lines = shown.splitlines()
    assert len(lines) == 2 + 3 + 1
    assert all(line.isprintable() for line in lines)
    assert (lines[1].count("a\\x1b[31mred\\nbilling"), json.loads(lines[-1]), noted.count("\n")) == (3, rows, 1)
    assert noted.strip().isprintable()


def test_the_log_has_a_line_an_event() -> None:
    record = logging.LogRecord("seaweedmq", logging.INFO, "", 0, "client %s is closed", (NAME,), None)
    assert _OneLine("%(message)s").format(record) == ("client a\\x1b[31mred | billing   kafka \\x9b2J\\u202e is closed")
