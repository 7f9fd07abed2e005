"""Check of the storage before a broker registers: it starts on a full one, and on none that it cannot use.

A broker on a full storage serves what is there, and its retention makes room.
"""

import logging

from seaweedmq.errors import StorageFull
from seaweedmq.ports import SegmentStore

log = logging.getLogger(__name__)


async def check_storage(store: SegmentStore) -> None:
    """Make sure that the storage can be written, or is full.

    Raises:
        StorageFailed: If it cannot be written for another reason.
    """
    try:
        await store.check()
    except StorageFull as error:
        log.error("storage full: reads and retention continue, publishers wait: %s", error)
