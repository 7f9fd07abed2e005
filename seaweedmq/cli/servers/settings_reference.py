"""Reference of the broker's settings, for people: a page and a configuration file with every default.

It is for developers and needs the checkout: ``python -m seaweedmq.cli.servers.settings_reference`` writes both files to
``deploy/``. The meaning of a setting is the docstring below it in ``BrokerConfig``.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from seaweedmq.model.config import DELIVERY_TIMEOUT_S_MAX, SETTINGS, BrokerConfig, Setting

DEPLOY = Path(__file__).parents[3] / "deploy"
UNITS = {"bytes_per_s": "bytes per second", "records_per_s": "records per second", "bytes": "bytes", "s": "seconds"}
"""Part of a setting's name -> its unit. The first that matches counts; other numbers have none."""
PAGE = """# Settings of a broker

`seaweedmq broker --config FILE` reads a TOML file with these settings. `broker.toml` has every default. A broker does
not start with an unknown name, or with a value of another type or out of range.

Do not edit this page or that file. `python -m seaweedmq.cli.servers.settings_reference` writes both.

| Setting | Default | Range | Meaning |
|---|---|---|---|
"""
FILE = """# Settings of one broker, for `seaweedmq broker --config FILE`. Each value is the default: omit what you
# do not change. SETTINGS.md has the same as a table.
"""


def write_page() -> str:
    """Return the page in Markdown."""
    rows = (
        f"| `{setting.name}` | `{_toml(setting.default)}` | {_range(setting)} | {meaning} |\n"
        for setting, meaning in _described()
    )
    return PAGE + "".join(rows)


def write_file() -> str:
    """Return the configuration file in TOML."""
    entries = []
    for setting, meaning in _described():
        comment = textwrap.fill(meaning, 118, initial_indent="# ", subsequent_indent="# ")
        entries.append(f"\n{comment}\n# {_range(setting)}.\n{setting.name} = {_toml(setting.default)}\n")
    return FILE + "".join(entries)


def _described() -> Iterator[tuple[Setting, str]]:
    body = ast.parse(inspect.getsource(BrokerConfig)).body[0].body  # type: ignore[attr-defined]
    for declared, below in pairwise(body):
        if isinstance(declared, ast.AnnAssign):
            setting = SETTINGS[declared.target.id]  # type: ignore[union-attr]
            meaning = " ".join(below.value.value.split()).replace("``", "`")
            yield setting, f"{meaning} All brokers need the same value." if setting.is_uniform else meaning


def _range(setting: Setting) -> str:
    if not setting.is_number:
        return setting.type_rule.capitalize()
    unit = next((unit for part, unit in UNITS.items() if re.search(rf"(^|_){part}(_|$)", setting.name)), "")
    low = f"Above {DELIVERY_TIMEOUT_S_MAX:g}" if setting.outlasts_clients else f"From {setting.least:,}"
    return f"{low} to {setting.most:,} {unit}".rstrip()


def _toml(value: float | str) -> str:
    return json.dumps(value) if isinstance(value, bool | str) else f"{value:_}"


if __name__ == "__main__":
    (DEPLOY / "SETTINGS.md").write_text(write_page())
    (DEPLOY / "broker.toml").write_text(write_file())
