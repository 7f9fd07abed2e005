"""Lists of intended differences in the README of ``seaweedmq/kafka``. Run this module to write them."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import seaweedmq.kafka
from tests.kafka.differential.comparison import Rule
from tests.kafka.differential.deliberate import DELIBERATE
from tests.kafka.requests.meant import MEANT

README = Path(seaweedmq.kafka.__file__).parent / "README.md"
BEGIN, END = "<!-- differences -->\n", "<!-- end of differences -->\n"


def document(text: str) -> str:
    """Return the README with current lists."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "".join([before, BEGIN, *_lists(), END, after])


def _lists() -> Iterator[str]:
    yield "\n### Single requests\n\n"
    yield from _table(MEANT, "API", "request: field of the reply")
    yield "\n### Scenes\n\n"
    yield from _table(DELIBERATE, "scene", "request: field of the reply")
    yield "\n"


def _table(rules: Sequence[Rule], what: str, where: str) -> Iterator[str]:
    if not rules:
        yield "The list is empty: the differences in the comparison have not been reviewed yet.\n"
        return
    yield f"| {what} | {where} | reason |\n|---|---|---|\n"
    for scene, of_scene in groupby(rules, key=lambda rule: rule.scene):
        for rule in of_scene:
            place = rule.where.replace("|", "\\|")
            yield f"| {'all' if scene == '*' else scene} | `{place}` | {rule.why} |\n"


if __name__ == "__main__":
    README.write_text(document(README.read_text()))
