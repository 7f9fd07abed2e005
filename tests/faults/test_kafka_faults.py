"""Tests of faults with Kafka clients: idempotent publishers, readers, and a group whose coordinator is hit."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.faults.episode import Outcome, play, stage
from tests.faults.machines.cluster import Cluster
from tests.faults.users.kafka_workload import REPLICATED, SINGLE

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

TTL_S = 1.5
ATTEMPTS = 3
"""Attempts for gaps, since other load on the machine causes some."""
MEMBERS = 3
RECORDS_PER_S = 150.0
RESUMED_S = 1.5
"""Seconds until members commit again, after another broker leads."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Three brokers that the module's tests share; each test repairs them."""
    async with stage(tmp_path_factory.mktemp("faults"), lease_ttl_s=TTL_S) as running:
        yield running


async def hurt(cluster: Cluster, *faults: str, attempt: int = 0) -> Outcome:
    """Play one episode, which must not lose, duplicate or reorder records, nor lose commits."""
    outcome = await play(
        cluster,
        faults,
        seed=f"kafka-{'-'.join(faults)}-{attempt}",
        plans=(),
        kafka_plans=(REPLICATED, SINGLE),
        kafka_records_per_s=RECORDS_PER_S,
        kafka_members=MEMBERS,
    )
    print(outcome.line())
    assert not outcome.violations, outcome.violations[:5]
    assert outcome.given >= outcome.kafka_acked > 0
    assert outcome.commits
    return outcome


async def test_a_coordinator_that_is_killed_is_replaced_without_a_rebalance(cluster: Cluster) -> None:
    for attempt in range(ATTEMPTS):
        outcome = await hurt(cluster, "kill_coordinator", attempt=attempt)
        assert outcome.generations == 0
        if outcome.commit_wait_s < TTL_S + RESUMED_S:
            return
    pytest.fail(f"members could not commit for {outcome.commit_wait_s:.2f} s")


@pytest.mark.deep
async def test_members_and_connections_end_while_a_primary_dies(cluster: Cluster) -> None:
    outcome = await hurt(cluster, "kill_primary", "hang_up_kafka", "kill_member")
    assert outcome.generations > 0


@pytest.mark.deep
async def test_all_leases_end_at_once_and_clients_go_on(cluster: Cluster) -> None:
    """While no broker is registered, metadata without brokers would keep clients from any request for minutes."""
    await hurt(cluster, "cut_etcd_all")


@pytest.mark.deep
async def test_a_rolling_restart(cluster: Cluster) -> None:
    await hurt(cluster, "rolling_restart")
