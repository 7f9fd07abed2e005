"""Tests of failures beneath a cluster: its storage, its etcd and its clocks. They judge losses, not gaps."""

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.faults.episode import play, possible, stage
from tests.faults.machines.cluster import Cluster
from tests.faults.machines.network import Unsupported

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

TTL_S = 2.0
STORAGE_MIB = 64
RECORDS_PER_S = 100.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Two brokers with a mount and a clock that can be stepped, if this machine allows that."""
    async with contextlib.AsyncExitStack() as stack:
        for size_mib, clocks in ((STORAGE_MIB, True), (STORAGE_MIB, False), (0, True), (0, False)):
            directory = tmp_path_factory.mktemp("foundations")
            staged = stage(directory, brokers=2, lease_ttl_s=TTL_S, own_storage_mib=size_mib, clocks=clocks)
            try:
                running = await stack.enter_async_context(staged)
            except Unsupported:
                continue
            break
        yield running


async def hurt(cluster: Cluster, *faults: str) -> None:
    """Play one episode, which must not lose, duplicate or reorder records."""
    if not {*faults} <= {*possible(cluster, members=0)}:
        pytest.skip("needs mounts, which need root, or the Debian package libfaketime")
    outcome = await play(cluster, faults, seed="-".join(faults), records_per_s=RECORDS_PER_S, calm_s=0.0)
    print(outcome.line())
    assert not outcome.violations, outcome.violations[:5]
    assert outcome.acked


@pytest.mark.deep
async def test_a_read_only_storage_an_etcd_out_of_space_a_clock_that_steps_and_few_descriptors_lose_nothing(
    cluster: Cluster,
) -> None:
    await hurt(cluster, "storage_read_only", "etcd_quota", "clock_step", "few_descriptors")


@pytest.mark.deep
async def test_an_etcd_that_is_restored_from_a_backup_and_recovered_loses_nothing(cluster: Cluster) -> None:
    await hurt(cluster, "etcd_snapshot_restore")
