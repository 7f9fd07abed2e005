"""Files of a topic, and a store of them, in a directory of their own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seaweedmq.storage.store.files import FileSegmentStore
from tests.support.topic_files import TopicFiles


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FileSegmentStore]:
    """Closed when the test ends."""
    made = FileSegmentStore(tmp_path)
    yield made
    await made.close()


@pytest.fixture
def orders(tmp_path: Path) -> TopicFiles:
    """Return the files of an empty topic shop/orders with one segment."""
    return TopicFiles(tmp_path)
