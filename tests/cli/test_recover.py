"""Recovery of etcd from a folder: by `cluster recover`, and by `up` for its own etcd."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from seaweedmq.cli.servers.recovery import recover_local
from seaweedmq.codec.paths import log_dir
from seaweedmq.coordination.local import LocalEtcd
from seaweedmq.errors import Conflict, InvalidArgument
from seaweedmq.model.cluster import STORAGE_FORMAT, StorageMarker
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.store.files import FileSegmentStore
from tests.support.commands import run
from tests.support.etcd import running_etcd

pytestmark = pytest.mark.integration
TIMEOUT_S = 20.0
LEASE_TTL_S = 0.5
CLUSTER = "c-1"


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    async with running_etcd(tmp_path / "etcd") as running:
        yield running


@pytest.fixture
async def storage(tmp_path: Path) -> Path:
    """Create the storage of a cluster that has recovered etcd before, without topics."""
    folder = tmp_path / "storage"
    folder.mkdir()
    await mark(folder, CLUSTER)
    return folder


async def mark(folder: Path, cluster_id: str) -> None:
    store = FileSegmentStore(folder)
    marker = StorageMarker(cluster_id=cluster_id, format=STORAGE_FORMAT, generation=1, etcd_revision=7)
    await store.create_marker(marker)
    await store.close()


async def recover(storage: Path, etcd: LocalEtcd, *options: str) -> tuple[int, str, str]:
    """Run the command; return status, stdout and stderr."""
    arguments = ("cluster", "recover", "--storage", str(storage), "--etcd", etcd.endpoint, "--lease-ttl", "1", *options)
    done = await asyncio.to_thread(run, *arguments)
    return done.status, done.text, done.stderr


async def test_the_command_plans_applies_and_then_has_nothing_to_do(etcd: LocalEtcd, storage: Path) -> None:
    status, out, err = await recover(storage, etcd)
    assert (status, "lost: etcd is empty" in out) == (0, True)
    assert err == "nothing was changed: add --apply to carry the plan out\n"
    status, out, err = await recover(storage, etcd, "--apply", "-o", "json")
    plan = json.loads(out)
    assert (status, err, plan["applied"], plan["generation"], plan["cluster"]) == (0, "", True, 2, CLUSTER)
    status, out, _ = await recover(storage, etcd, "--apply")
    assert status == 0
    assert out == f"nothing to do: etcd and storage {storage} are in step, cluster {CLUSTER}\n"


async def test_a_problem_is_named_and_nothing_is_changed(etcd: LocalEtcd, storage: Path) -> None:
    leave_a_file_of_no_topic(storage)
    status, out, err = await recover(storage, etcd, "--apply")
    assert status == 1
    assert "problem: test/orders: topic.json is missing or unreadable" in out
    assert "nothing was changed" in err
    with pytest.raises(Conflict, match=r"nothing was changed: test/orders: topic\.json is missing"):
        await recover_local(str(storage), etcd.endpoint, TIMEOUT_S, is_own=True, lease_ttl_s=LEASE_TTL_S)
    assert (await recover(storage, etcd))[1].startswith("etcd        lost")


async def test_up_recovers_its_own_etcd_and_leaves_a_named_one(etcd: LocalEtcd, storage: Path, tmp_path: Path) -> None:
    command = f"`seaweedmq cluster recover --storage {storage} --etcd {etcd.endpoint}`"
    with pytest.raises(Conflict, match=command):
        await recover_local(str(storage), etcd.endpoint, TIMEOUT_S, is_own=False, lease_ttl_s=LEASE_TTL_S)
    await recover_local(str(storage), etcd.endpoint, TIMEOUT_S, is_own=True, lease_ttl_s=LEASE_TTL_S)
    await recover_local(str(storage), etcd.endpoint, TIMEOUT_S, is_own=False, lease_ttl_s=LEASE_TTL_S)
    empty = tmp_path / "not mounted"
    empty.mkdir()
    with pytest.raises(InvalidArgument, match=r"has no cluster\.json, and etcd has a cluster"):
        await recover_local(str(empty), etcd.endpoint, TIMEOUT_S, is_own=True, lease_ttl_s=LEASE_TTL_S)
    await mark(empty, "c-2")
    with pytest.raises(InvalidArgument, match="belongs to cluster c-2, and etcd to cluster c-1"):
        await recover_local(str(empty), etcd.endpoint, TIMEOUT_S, is_own=True, lease_ttl_s=LEASE_TTL_S)


def leave_a_file_of_no_topic(storage: Path) -> None:
    """Create a log file in a topic's folder that has lost its documents."""
    folder = storage / log_dir(TopicName.parse("test/orders"), 0)
    folder.mkdir(parents=True)
    (folder / "00000000000000000000-b1.log").write_bytes(b"")
