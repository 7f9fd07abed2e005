"""What looking after files costs."""

import asyncio

from seaweedmq.model.topic import Scaling
from seaweedmq.storage.memory import StorageOp
from tests.broker.bed import CONFIG, Bed, story

HOUR_S = 3_600.0


@story
async def test_the_files_of_many_segments_are_looked_after_in_one_listing(bed: Bed) -> None:
    (host,) = await bed.cluster(1)
    await bed.topic(host, segments=32, scaling=Scaling.FIXED)
    listed_before = bed.faults.counts[StorageOp.LIST]
    await asyncio.sleep(HOUR_S / 4)
    looks = HOUR_S / 4 / max(CONFIG.maintenance_interval_s, CONFIG.log_grace_s / 4)
    assert 1 <= bed.faults.counts[StorageOp.LIST] - listed_before <= looks + 1
