"""A file store in a directory of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seaweedmq.storage.store.files import FileSegmentStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileSegmentStore]:
    """Closed when the test ends."""
    root = tmp_path / "root"
    root.mkdir()
    made = FileSegmentStore(root)
    yield made
    await made.close()
