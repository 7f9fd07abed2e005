"""Check that texts use plain words: ``python -m tests.language [PATH ...]``, part of ``make check``.

It reads docstrings, comments, strings with a space, ``.md``, ``.proto`` and ``.toml`` files, and prints each line with
a banned phrase. Such phrases hide the subject of a sentence or stand for a term of the field; ARCHITECTURE.md lists the
terms.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUFFIXES = (".py", ".md", ".proto", ".toml")
EXACT = (
    r'"""(Wh(at|o|ose|om|ere|en|ich)|How)\b',
    r'"""(Of|As|By)\s',
    r'(^|"""|[.;:] |# )Who\b',
    r", too\b",
)
ANY_CASE = (
    r"(no|some|any|every)body",
    r"(who|what|which|where)ever",
    r"(is|are|was|were|be|been) (told|asked|heard)",
    r"(tells?|told|hears?|heard) of",
    r"try(ing)? on|look(s|ed|ing)? (again|anew|after)",
    r"anew|all the same|for good|for ever|by and by",
    r"but for",
    r"(become|becomes|became) of",
    r"(go|goes|going|went) on",
    r"doors?|tales?|(other|inner) rooms?|rooms of",
    r"can not",
    r"we|our|of ours",
    r"(is|are) none of",
    r"(?<!there )(is|are) no (?!longer|more)",
    r"any ?more",
    r"conversations?|converses?",
    r"by hand",
    r"says? (so|what|where|how|who|which|whether)",
)
BANNED = [re.compile(rule) for rule in EXACT] + [re.compile(rf"\b({rule})\b", re.IGNORECASE) for rule in ANY_CASE]
EXCEPT = ("tests/language.py", "tests/kafka/differential/scenes/")
"""The rules themselves, and names that recorded answers of Apache Kafka are filed under."""


def banned(line: str) -> str | None:
    """Return the first banned phrase of a line."""
    return next((found.group(0) for rule in BANNED if (found := rule.search(line))), None)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of a file that are text for people."""
    text = path.read_text()
    lines = text.split("\n")
    if path.suffix != ".py":
        yield from enumerate(lines, 1)
        return
    numbers = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            numbers.update(range(token.start[0], token.end[0] + 1))
    for number in sorted(numbers):
        yield number, lines[number - 1]


def tracked(paths: Iterable[str]) -> list[Path]:
    """Return the files of the repository below the paths, without generated stubs."""
    command = ["git", "ls-files", "--", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    names = done.stdout.splitlines()
    return [ROOT / n for n in names if n.endswith(SUFFIXES) and "_pb2" not in n and not n.startswith(EXCEPT)]


def main(paths: list[str]) -> int:
    """Print every line with a banned phrase, and return 1 if there is one."""
    count = 0
    for path in tracked(paths):
        for number, line in prose(path):
            if found := banned(line):
                count += 1
                print(f"{path.relative_to(ROOT)}:{number}: {found!r} in: {line.strip()[:110]}")
    print(f"{count} lines with banned phrases" if count else "no banned phrases")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
