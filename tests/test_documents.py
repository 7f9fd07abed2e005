"""Tests that links, paths and anchors in the Markdown files exist, and that the front documents stay short."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
).stdout.splitlines()
DOCUMENTS = [ROOT / name for name in TRACKED if name.endswith(".md")]
BYTES_MAX = {"README.md": 8_192, "ARCHITECTURE.md": 12_288, "CHANGELOG.md": 4_096}

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\s]+)`")
PATH = re.compile(r"[\w./-]*\w\.(?:py|md|toml|proto|sh|service|example)|(?:[\w-]+/)+")
ROOTS = ("", "seaweedmq", "tests", "benchmarks", "proto", "deploy")
"""Bases of paths in backticks, besides the document's directory; a bare name is that of any file or directory."""
NOT_FILES = frozenset({"table/", ".staged/", ".sinks/", "groups/", "log/", "day=1/"})
"""Directories of a storage root."""


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(text: str) -> set[str]:
    """Return GitHub's anchors of the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_links_lead_somewhere(document: Path) -> None:
    wrong = []
    for target in LINK.findall(document.read_text()):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path) if path else document
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            wrong.append(target)
    assert not wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=names)
def test_paths_exist(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    wrong = []
    for code in CODE.findall(text):
        if PATH.fullmatch(code) and code not in NOT_FILES and not code.startswith(("/", "topics/")):
            candidates = [document.parent / code, *(ROOT / root / code for root in ROOTS)]
            is_bare = "/" not in code.rstrip("/") and any(f"/{code}" in f"/{name}" for name in TRACKED)
            if not is_bare and not any(candidate.exists() for candidate in candidates):
                wrong.append(code)
    assert not wrong


@pytest.mark.parametrize(("document", "limit"), BYTES_MAX.items())
def test_front_documents_stay_short(document: str, limit: int) -> None:
    assert (ROOT / document).stat().st_size <= limit


def test_every_package_that_has_a_readme_is_on_the_map() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    missing = [names(path) for path in DOCUMENTS if path.name == "README.md" and names(path) not in text]
    assert set(missing) <= {"README.md"} | {"deploy/README.md", "benchmarks/README.md"}
