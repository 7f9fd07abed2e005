"""Failures beneath a cluster: its storage, its etcd and its clocks. Losses are judged, and not gaps."""

from pathlib import Path

import pytest

from tests.faults.episode import play, stage
from tests.faults.machines.network import Unsupported

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TTL_S = 3.0
STORAGE_MIB = 64
RECORDS_PER_S = 100.0


async def hurt(directory: Path, fault: str, *, mount: bool = False, clocks: bool = False) -> None:
    """Play one episode on two brokers; nothing may be lost, stored twice or reordered."""
    size_mib = STORAGE_MIB if mount else 0
    try:
        async with stage(directory, brokers=2, lease_ttl_s=TTL_S, own_storage_mib=size_mib, clocks=clocks) as cluster:
            outcome = await play(cluster, [fault], seed=fault, records_per_s=RECORDS_PER_S)
    except Unsupported as why:
        pytest.skip(str(why))
    print(outcome.line())
    assert not outcome.violations, outcome.violations[:5]
    assert outcome.acked


async def test_a_read_only_storage_loses_nothing(tmp_path: Path) -> None:
    await hurt(tmp_path, "storage_read_only", mount=True)


async def test_an_etcd_out_of_space_loses_nothing(tmp_path: Path) -> None:
    await hurt(tmp_path, "etcd_quota")


async def test_a_wall_clock_that_steps_loses_nothing(tmp_path: Path) -> None:
    await hurt(tmp_path, "clock_step", clocks=True)
