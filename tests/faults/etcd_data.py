"""Etcd out of space, restored from an older backup, or lost: the cluster refuses to serve, and is recovered."""

import asyncio
import contextlib
import os
import sys

from seaweedmq.codec.paths import CLUSTER_DOCUMENT
from seaweedmq.codec.state.cluster import marker_from_document
from seaweedmq.errors import NotFound
from tests.faults.machines.cluster import ROOT, Cluster
from tests.faults.machines.etcd_data import EtcdToolError
from tests.faults.testbed import FaultTestbed

OUT_OF_SPACE_S = (0.5, 5.0)
FILL_MIB_MAX = 256
SINCE_BACKUP_S = (0.1, 2.0)
REFUSED_WITHIN_S = 30.0
REMEDY = "cluster recover"
"""Words of a broker's message when it refuses to serve."""
KILLED_SHARE = 0.5
"""Share of recoveries that are killed and rerun."""
KILLED_AFTER_S = (1.0, 3.0)
RECOVERED_WITHIN_S = 60.0
LOOK_S = 0.1
YOUNGER = "faults/younger-than-the-backup"
SEEN_WITHIN_S = 20.0
"""Seconds within which the leader records a change in the storage."""


async def etcd_quota(testbed: FaultTestbed) -> None:
    """Use up etcd's quota with foreign keys; free space after a while."""
    async with testbed.cluster.etcd_turn:
        data = testbed.cluster.etcd_data
        try:
            written = await data.fill(FILL_MIB_MAX)
            testbed.say(f"etcd is out of space, {written} MiB of it are of others")
            await asyncio.sleep(testbed.rng.uniform(*OUT_OF_SPACE_S))
        finally:
            await data.make_room()
        testbed.say("etcd takes writes again")


async def etcd_snapshot_restore(testbed: FaultTestbed) -> None:
    """Replace etcd by its backup, which lacks a topic; recover the cluster from the storage."""
    cluster = testbed.cluster
    async with cluster.etcd_turn:
        backup = await cluster.etcd_data.back_up()
        revision = await cluster.etcd_data.revision()
        await asyncio.sleep(testbed.rng.uniform(*SINCE_BACKUP_S))
        async with await cluster.connect() as client:
            await client.admin.create_topic(YOUNGER)
        async with asyncio.timeout(SEEN_WITHIN_S):
            while await asyncio.to_thread(_seen, cluster) <= revision:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(LOOK_S)
        testbed.say(f"etcd is restored from {backup.name}, of revision {revision}")
        await cluster.etcd_data.restore(backup)
        await _recover(testbed)
        await cluster.until_ready()
        async with await cluster.connect() as client:
            await client.admin.describe_topic(YOUNGER)  # the storage has it, although etcd did not
            with contextlib.suppress(NotFound):  # a deletion whose answer was late is repeated
                await client.admin.delete_topic(YOUNGER)


def _seen(cluster: Cluster) -> int:
    """Return the revision of etcd that the storage has seen."""
    return marker_from_document((cluster.storage / CLUSTER_DOCUMENT).read_bytes()).etcd_revision


async def etcd_lost(testbed: FaultTestbed) -> None:
    async with testbed.cluster.etcd_turn:
        testbed.say("etcd loses its data")
        await testbed.cluster.etcd_data.lose()
        await _recover(testbed)


async def _recover(testbed: FaultTestbed) -> None:
    """Wait until every broker refuses to serve and names the remedy, and apply it."""
    cluster = testbed.cluster
    marks = {node: cluster.log_path(node).stat().st_size for node in cluster.nodes}
    try:
        async with asyncio.timeout(REFUSED_WITHIN_S):
            for node, mark in marks.items():
                while REMEDY not in cluster.log_since(node, mark):  # noqa: ASYNC110 - a log has no event
                    await asyncio.sleep(LOOK_S)
    except TimeoutError:
        testbed.exits.append(f"{node} does not say `{REMEDY}`: {cluster.log_end(node)}")
    if testbed.rng.random() < KILLED_SHARE:
        process = await _start_recovery(cluster)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.communicate(), testbed.rng.uniform(*KILLED_AFTER_S))
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        testbed.say(f"SIGKILL of the recovery, which ended with {await process.wait()}")
    process = await _start_recovery(cluster)
    async with asyncio.timeout(RECOVERED_WITHIN_S):
        output, _ = await process.communicate()
    if process.returncode != 0:
        raise EtcdToolError(f"`cluster recover --apply` ended with {process.returncode}: {output.decode()[-1_000:]}")
    testbed.say("the cluster is recovered")


async def _start_recovery(cluster: Cluster) -> asyncio.subprocess.Process:
    command = ["cluster", "recover", "--storage", str(cluster.storage), "--etcd", cluster.etcd.endpoint, "--apply"]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "seaweedmq.cli.main", *command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env=dict(os.environ),
    )
