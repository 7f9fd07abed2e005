"""Tests of every fault on a real cluster, and of combinations: gaps on the best of a few attempts, losses on all."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.faults.episode import Outcome, play, stage
from tests.faults.machines.cluster import Cluster
from tests.faults.machines.network import Unsupported
from tests.faults.users.workload import REPLICATED, SINGLE, STORED

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]
DEEP = pytest.mark.deep

TTL_S = 2.0
ATTEMPTS = 3
"""Attempts for gaps, since other load on the machine causes some."""
OWN_STORAGE_MIB = 64
MEMBERS = 3


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Three brokers that the module's tests share; each test repairs them."""
    async with stage(tmp_path_factory.mktemp("faults"), lease_ttl_s=TTL_S) as running:
        yield running


async def hurt(cluster: Cluster, *faults: str, gap_s: dict[str, float] | None = None, members: int = 0) -> Outcome:
    """Play until the gaps are within their limits (by label of the topic); no attempt may lose records."""
    for attempt in range(ATTEMPTS):
        outcome = await play(cluster, faults, seed=f"{'-'.join(faults)}-{attempt}", members=members)
        print(outcome.line())
        assert not outcome.violations, outcome.violations[:5]
        late = {label: outcome.gaps_s[label] for label, limit in (gap_s or {}).items() if outcome.gaps_s[label] > limit}
        if not late:
            return outcome
    raise AssertionError(f"gaps between acknowledgements in s: {late}, allowed: {gap_s}")


def both(limit_s: float) -> dict[str, float]:
    """Return the limit for the topics with two replicas."""
    return {REPLICATED.label: limit_s, STORED.label: limit_s}


def every(limit_s: float) -> dict[str, float]:
    """Return the limit for all topics."""
    return {**both(limit_s), SINGLE.label: limit_s}


@pytest.mark.parametrize(
    ("faults", "gap_s"),
    [
        pytest.param(["rolling_restart"], every(2.0), id="a rolling restart gives no error", marks=DEEP),
        pytest.param(["drain"], every(2.0), id="a drained broker is left", marks=DEEP),
        pytest.param(
            ["merge", "split", "cut_etcd_back"],
            None,
            id="segments change while a broker does not hear etcd",
            marks=DEEP,
        ),
        pytest.param(["kill_primary"], both(1.0), id="a killed primary is replaced"),
        pytest.param(["kill_follower"], both(1.0), id="a killed follower is replaced"),
        pytest.param(["freeze_primary"], both(TTL_S + 1), id="a frozen primary is replaced and wakes up harmless"),
        pytest.param(
            ["freeze_follower"], both(TTL_S + 1), id="a frozen follower is replaced and wakes up harmless", marks=DEEP
        ),
        pytest.param(
            ["freeze_leader"], both(TTL_S + 1), id="a frozen leader is replaced and wakes up harmless", marks=DEEP
        ),
        pytest.param(["freeze_etcd"], None, id="a frozen etcd"),
        pytest.param(["terminate_rejoining"], None, id="a broker that wakes up without its lease is stopped"),
    ],
)
async def test_faults_lose_nothing_and_end_within_their_time(
    cluster: Cluster, faults: list[str], gap_s: dict[str, float] | None
) -> None:
    await hurt(cluster, *faults, gap_s=gap_s)


async def test_segments_are_split_merged_and_moved_without_a_gap(cluster: Cluster) -> None:
    outcome = await hurt(cluster, "split", "merge", "move", gap_s=every(2.0))
    assert outcome.changes > 3, "of three kinds, all on a cluster that is well"


# --- a group reads ----------------------------------------------------------------------------------------------------


@pytest.mark.deep
async def test_a_group_that_loses_a_member_reads_through_changes_of_segments_and_the_death_of_a_primary(
    cluster: Cluster,
) -> None:
    outcome = await hurt(cluster, "split", "merge", "move", "kill_primary", "kill_member", members=MEMBERS)
    assert outcome.changes
    assert outcome.given >= outcome.acked


@pytest.mark.deep
async def test_a_frozen_member_is_replaced_and_wakes_up_harmless(cluster: Cluster) -> None:
    outcome = await hurt(cluster, "freeze_member", members=MEMBERS)
    assert outcome.given >= outcome.acked


@pytest.mark.deep
async def test_a_group_goes_on_when_the_leader_dies_that_shares_out_its_segments(cluster: Cluster) -> None:
    outcome = await hurt(cluster, "kill_leader", "kill_member", members=MEMBERS)
    assert outcome.given >= outcome.acked


# --- killed -----------------------------------------------------------------------------------------------------------


async def test_a_killed_leader_that_is_also_primary_is_replaced_within_its_lease_and_1_s(cluster: Cluster) -> None:
    await hurt(cluster, "kill_leader", gap_s=both(TTL_S + 1))


async def test_all_killed_at_once_lose_nothing(cluster: Cluster) -> None:
    await hurt(cluster, "kill_all")


async def test_a_torn_last_write_is_no_record(cluster: Cluster) -> None:
    await hurt(cluster, "torn_write")


# --- cut off ----------------------------------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.parametrize("fault", ["cut_pair", "cut_pair_one_way"])
async def test_two_brokers_that_do_not_hear_each_other(cluster: Cluster, fault: str) -> None:
    if not cluster.network.can_cut_pairs:
        pytest.skip("cutting a pair of brokers needs network namespaces, which need root")
    await hurt(cluster, fault)


@pytest.mark.parametrize(
    "fault",
    ["cut_etcd_leader", *(pytest.param(way, marks=DEEP) for way in ("cut_etcd", "cut_etcd_there", "cut_etcd_back"))],
)
async def test_a_broker_that_does_not_hear_etcd(cluster: Cluster, fault: str) -> None:
    await hurt(cluster, fault)


@pytest.mark.deep
async def test_a_broker_nobody_reaches_while_a_follower_sleeps(cluster: Cluster) -> None:
    await hurt(cluster, "cut_off", "freeze_follower")


# --- etcd -------------------------------------------------------------------------------------------------------------


async def test_a_killed_etcd_and_a_killed_broker(cluster: Cluster) -> None:
    await hurt(cluster, "kill_etcd", "kill_primary")


# --- storage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quota", [pytest.param(False, id="mounted", marks=DEEP), pytest.param(True, id="quota")])
async def test_a_full_disk_holds_everything_up_and_loses_nothing(tmp_path: Path, quota: bool) -> None:
    size_mib = 0 if quota else OWN_STORAGE_MIB
    try:
        async with stage(tmp_path, brokers=2, lease_ttl_s=TTL_S, own_storage_mib=size_mib, quota=quota) as cluster:
            await hurt(cluster, "storage_full")
    except Unsupported as why:
        pytest.skip(str(why))
