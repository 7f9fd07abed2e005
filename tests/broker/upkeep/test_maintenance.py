"""What looking after files costs, and what it does to them when clocks are wrong."""

import asyncio
from dataclasses import replace

import pytest

from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import Scaling
from seaweedmq.storage.store.memory import StorageOp
from tests.broker.bed import CONFIG, Bed, Host, story

HOUR_S = 3_600.0
YEAR_S = 365 * 24 * HOUR_S
QUICK = replace(CONFIG, log_grace_s=4.0, log_roll_age_s=2.0, maintenance_interval_s=1.0)


@story
async def test_the_files_of_many_segments_are_looked_after_in_one_listing(bed: Bed) -> None:
    (host,) = await bed.cluster(1)
    await bed.topic(host, segments=32, scaling=Scaling.FIXED)
    listed_before = bed.faults.counts[StorageOp.LIST]
    await asyncio.sleep(HOUR_S / 4)
    looks = HOUR_S / 4 / max(CONFIG.maintenance_interval_s, CONFIG.log_grace_s / 4)
    assert 1 <= bed.faults.counts[StorageOp.LIST] - listed_before <= looks + 1


async def two_tables(bed: Bed, host: Host) -> None:
    """Of records that are stored with some minutes between them."""
    publisher = await host.publisher()
    for count in (1, 2):
        await publisher.store()
        await bed.until(lambda count=count: len(bed.files(FileKind.TABLE)) == count)
        await asyncio.sleep(HOUR_S / 20)


@story
async def test_a_clock_that_is_years_ahead_deletes_nothing(bed: Bed) -> None:
    (host,) = await bed.cluster(1, QUICK)
    await bed.topic(host, retention_s=HOUR_S / 6)
    await two_tables(bed, host)
    host.ahead_s = 10 * YEAR_S
    await asyncio.sleep(60)
    assert len(bed.files(FileKind.TABLE)) == 2
    host.ahead_s = 0
    await asyncio.sleep(HOUR_S / 12)
    assert [f.base_offset for f in bed.files(FileKind.TABLE)] == [1]


@pytest.mark.parametrize("ahead_s", [-YEAR_S, -10.0, 10.0, YEAR_S])
@story
async def test_conversion_goes_on_whatever_the_clock_does(bed: Bed, ahead_s: float) -> None:
    (host,) = await bed.cluster(1, QUICK)
    await bed.topic(host, retention_s=HOUR_S)
    publisher = await host.publisher()
    for count in (1, 2):
        await publisher.store()
        await bed.until(lambda count=count: len(bed.files(FileKind.TABLE)) == count)
        host.ahead_s = ahead_s


@story
async def test_files_are_looked_over_when_the_clock_was_set_back(bed: Bed) -> None:
    (host,) = await bed.cluster(1, QUICK)
    await bed.topic(host, retention_s=HOUR_S)
    await asyncio.sleep(10)
    host.ahead_s = -YEAR_S
    before = bed.faults.counts[StorageOp.LIST]
    await asyncio.sleep(10)
    assert bed.faults.counts[StorageOp.LIST] >= before + 5
