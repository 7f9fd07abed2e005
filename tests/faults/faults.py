"""All faults by name: a fault strikes, lasts, and repairs itself; ``restore`` repairs the rest."""

import asyncio
import random
import signal
from collections.abc import Sequence
from pathlib import Path

from seaweedmq.codec.frame import split_frames
from seaweedmq.codec.logfile import decode_preamble
from seaweedmq.errors import SeaweedMQError
from tests.faults.changes import merge, move, split
from tests.faults.clocks import clock_step
from tests.faults.etcd_data import etcd_lost, etcd_quota, etcd_snapshot_restore
from tests.faults.machines.cluster import Cluster, Node
from tests.faults.recreate import recreate
from tests.faults.resources import few_descriptors
from tests.faults.storage import filler, storage_full, storage_read_only, storage_unmounted
from tests.faults.testbed import Fault, FaultTestbed

BEYOND_LEASE_S = 1.5
"""Seconds beyond the lease for which a process stays frozen or cut off."""
HANG_UPS = 6
REJOINING_S = 0.05
"""Approximate seconds within which a broker that wakes up without its lease has rejoined under a new id."""


# --- killed processes -------------------------------------------------------------------------------------------------


async def _kill(testbed: FaultTestbed, nodes: Sequence[Node], what: str, *, down_s: float) -> None:
    testbed.say(f"SIGKILL of {what}: {', '.join(map(str, nodes))}")
    await asyncio.gather(*(testbed.cluster.kill(node) for node in nodes))
    await asyncio.sleep(down_s)
    for node in nodes:
        await testbed.cluster.start(node)


async def kill_primary(testbed: FaultTestbed) -> None:
    what = "a primary that does not lead"
    await _kill(testbed, [await testbed.victim(what, 0, leader=False)], what, down_s=testbed.rng.uniform(0, 2))


async def kill_follower(testbed: FaultTestbed) -> None:
    what = "a follower that does not lead"
    await _kill(testbed, [await testbed.victim(what, 1, leader=False)], what, down_s=testbed.rng.uniform(0, 2))


async def kill_leader(testbed: FaultTestbed) -> None:
    what = "the leader, which is also a primary"
    node = await testbed.some(0, leader=True)
    if node is None:
        testbed.unfit.append(what)
        node = await testbed.leading()
    await _kill(testbed, [node], what, down_s=testbed.rng.uniform(0, 2))


async def kill_coordinator(testbed: FaultTestbed) -> None:
    node = await testbed.coordinating()
    await _kill(testbed, [node], "the coordinator of the group", down_s=testbed.rng.uniform(0, 2))


async def freeze_coordinator(testbed: FaultTestbed) -> None:
    await _freeze(testbed, await testbed.coordinating(), "the coordinator of the group")


async def kill_all(testbed: FaultTestbed) -> None:
    nodes = [node for node in testbed.cluster.nodes if node.pid is not None]
    await _kill(testbed, nodes, "all brokers", down_s=testbed.rng.uniform(0, 1))


async def kill_all_but_one(testbed: FaultTestbed) -> None:
    left = testbed.some_node()
    nodes = [node for node in testbed.cluster.nodes if node.pid is not None and node is not left]
    await _kill(testbed, nodes, f"all brokers but {left}", down_s=testbed.rng.uniform(0, 3))


async def torn_write(testbed: FaultTestbed) -> None:
    """Kill a broker in the middle of a write: half a frame, or garbage, at the end of the newest log files."""
    node = await testbed.victim("a primary", 0)
    nodes = [n for n in testbed.cluster.nodes if n.pid is not None] if testbed.rng.random() < 0.3 else [node]
    writers = {broker for broker, at in (await testbed.cluster.members()).items() if at in nodes}
    async with testbed.cluster.storage_turn:
        testbed.say(f"SIGKILL in the middle of a write: {', '.join(map(str, nodes))}")
        await asyncio.gather(*(testbed.cluster.kill(n) for n in nodes))
        torn = await asyncio.to_thread(_tear, testbed.cluster.storage, writers, testbed.rng)
    testbed.say(f"{torn} log files end in half a write")
    await asyncio.sleep(testbed.rng.uniform(0, 1))
    for n in nodes:
        await testbed.cluster.start(n)


def _tear(storage: Path, writers: set[str], rng: random.Random) -> int:
    """Leave a torn write behind the last frame; fsynced data stays intact."""
    torn = 0
    newest: dict[Path, Path] = {}
    for path in sorted(storage.glob("topics/*/*/log/*/*.log")):
        if path.stem.split("-", 1)[1].split(".")[0] in writers:
            newest[path.parent] = path
    for path in newest.values():
        data = path.read_bytes()
        tail = rng.randbytes(rng.randint(1, 400))
        try:
            _, used = decode_preamble(data)
        except SeaweedMQError:
            continue  # killed before the preamble was complete; garbage there is a damaged file, no torn write
        try:
            frames = list(split_frames(data[used:]))
        except SeaweedMQError:
            frames = []  # killed in a real write: the appended bytes extend the damage
        if frames and rng.random() < 0.7:
            last = bytes(frames[-1].header_bytes) + bytes(frames[-1].payload)
            tail = last[: rng.randint(1, len(last) - 1)]
        with path.open("ab") as log:
            log.write(tail)
        torn += 1
    return torn


# --- frozen processes -------------------------------------------------------------------------------------------------


async def _freeze(testbed: FaultTestbed, node: Node, what: str) -> None:
    testbed.say(f"SIGSTOP of {what}: {node}")
    testbed.cluster.signal(node, signal.SIGSTOP)
    await asyncio.sleep(testbed.cluster.lease_ttl_s + BEYOND_LEASE_S)
    testbed.say(f"SIGCONT of {node}")
    testbed.cluster.signal(node, signal.SIGCONT)


async def freeze_primary(testbed: FaultTestbed) -> None:
    what = "a primary that does not lead"
    await _freeze(testbed, await testbed.victim(what, 0, leader=False), what)


async def freeze_follower(testbed: FaultTestbed) -> None:
    what = "a follower that does not lead"
    await _freeze(testbed, await testbed.victim(what, 1, leader=False), what)


async def freeze_leader(testbed: FaultTestbed) -> None:
    await _freeze(testbed, await testbed.leading(), "the leader")


async def terminate_rejoining(testbed: FaultTestbed) -> None:
    """Freeze a broker for longer than its lease, and send SIGTERM while it rejoins under a new id."""
    node = await testbed.victim("a primary", 0)
    process = node.process
    await _freeze(testbed, node, "a primary")
    after_s = testbed.rng.uniform(0, REJOINING_S)
    await asyncio.sleep(after_s)
    if node.process is process and node.pid is not None:  # otherwise another fault has ended it meanwhile
        testbed.say(f"SIGTERM of {node} {after_s * 1e3:.0f} ms later")
        await testbed.terminate(node)
    await testbed.cluster.start(node)


# --- network ----------------------------------------------------------------------------------------------------------


async def _hold(testbed: FaultTestbed) -> None:
    await asyncio.sleep(testbed.rng.uniform(0.5, testbed.cluster.lease_ttl_s + BEYOND_LEASE_S))


async def cut_pair(testbed: FaultTestbed) -> None:
    """Drop packets between two brokers; both reach etcd and clients."""
    await _cut_pair(testbed, both_ways=True)


async def cut_pair_one_way(testbed: FaultTestbed) -> None:
    """Drop packets from one broker to another, in this direction only."""
    await _cut_pair(testbed, both_ways=False)


async def _cut_pair(testbed: FaultTestbed, *, both_ways: bool) -> None:
    network = testbed.cluster.network
    one = await testbed.victim("a primary", 0)
    other = testbed.rng.choice([node for node in testbed.cluster.nodes if node is not one])
    if not both_ways and testbed.rng.random() < 0.5:
        one, other = other, one
    testbed.say(f"no packets from {one} to {other}" + (" and back" if both_ways else ""))
    await network.cut_pair(one.index, other.index)
    if both_ways:
        await network.cut_pair(other.index, one.index)
    await asyncio.sleep(testbed.cluster.lease_ttl_s + BEYOND_LEASE_S)
    await network.heal()
    testbed.say("packets arrive again")


async def cut_off(testbed: FaultTestbed) -> None:
    """Cut a broker off from other brokers and Kafka clients; it still reaches etcd."""
    node = await testbed.victim("a primary", 0)
    testbed.say(f"{node} is unreachable")
    await testbed.cluster.network.cut_off(node.index)
    node.kafka.cut()
    await asyncio.sleep(testbed.cluster.lease_ttl_s + BEYOND_LEASE_S)
    node.kafka.heal()
    await testbed.cluster.network.heal()
    testbed.say(f"{node} is reached again")


async def cut_kafka(testbed: FaultTestbed) -> None:
    """Cut a broker off from Kafka clients, in one direction or both; other connections stay intact."""
    node = await testbed.victim("a primary", 0)
    there, back = testbed.rng.choice(((True, True), (True, False), (False, True)))
    ways = "to and from" if there and back else "to" if there else "from"
    testbed.say(f"nothing gets {ways} {node} for Kafka's clients")
    node.kafka.cut(there=there, back=back)
    await _hold(testbed)
    node.kafka.heal()
    testbed.say(f"{node} and Kafka's clients hear each other again")


async def hang_up_kafka(testbed: FaultTestbed) -> None:
    """End the connections of Kafka clients repeatedly, with data in transit."""
    for _ in range(HANG_UPS):
        ended = [node.kafka.hang_up() for node in testbed.cluster.nodes if testbed.rng.random() < 0.7]
        testbed.say(f"{sum(ended)} connections of Kafka's clients end")
        await asyncio.sleep(testbed.rng.uniform(0, 1))


async def cut_etcd(testbed: FaultTestbed) -> None:
    await _cut_etcd(
        testbed, await testbed.victim("a primary that does not lead", 0, leader=False), there=True, back=True
    )


async def cut_etcd_there(testbed: FaultTestbed) -> None:
    await _cut_etcd(testbed, await testbed.victim("a primary", 0), there=True, back=False)


async def cut_etcd_back(testbed: FaultTestbed) -> None:
    await _cut_etcd(testbed, await testbed.victim("a primary", 0), there=False, back=True)


async def cut_etcd_leader(testbed: FaultTestbed) -> None:
    await _cut_etcd(testbed, await testbed.leading(), there=True, back=True)


async def cut_etcd_all(testbed: FaultTestbed) -> None:
    """Cut all brokers off from etcd until all leases have ended; then all rejoin at once, under new ids."""
    nodes = [node for node in testbed.cluster.nodes if node.pid is not None]
    await asyncio.gather(*(_cut_etcd(testbed, node, there=True, back=True) for node in nodes))


async def _cut_etcd(testbed: FaultTestbed, node: Node, *, there: bool, back: bool) -> None:
    ways = "to and from" if there and back else "to" if there else "from"
    testbed.say(f"nothing gets {ways} etcd for {node}")
    node.etcd.cut(there=there, back=back)
    await asyncio.sleep(testbed.cluster.lease_ttl_s + BEYOND_LEASE_S)
    node.etcd.heal()
    testbed.say(f"{node} and etcd hear each other again")


# --- etcd -------------------------------------------------------------------------------------------------------------


async def kill_etcd(testbed: FaultTestbed) -> None:
    async with testbed.cluster.etcd_turn:
        testbed.say("SIGKILL of etcd")
        await testbed.cluster.etcd.kill()
        await _hold(testbed)
        await testbed.cluster.etcd.start()
        testbed.say("etcd runs again")


async def freeze_etcd(testbed: FaultTestbed) -> None:
    async with testbed.cluster.etcd_turn:
        testbed.say("SIGSTOP of etcd")
        testbed.cluster.etcd.freeze()
        await _hold(testbed)
        testbed.cluster.etcd.thaw()
        testbed.say("SIGCONT of etcd")


# --- readers ----------------------------------------------------------------------------------------------------------


async def freeze_member(testbed: FaultTestbed) -> None:
    """Freeze a member for longer than its session."""
    group = testbed.rng.choice(testbed.groups)
    member = testbed.rng.choice(group.members)
    testbed.say(f"SIGSTOP of member {member.name}")
    await group.freeze(member, group.session_s + BEYOND_LEASE_S)
    testbed.say(f"SIGCONT of member {member.name}")


async def kill_member(testbed: FaultTestbed) -> None:
    group = testbed.rng.choice(testbed.groups)
    member = testbed.rng.choice(group.members)
    testbed.say(f"SIGKILL of member {member.name}")
    await group.kill(member)
    await asyncio.sleep(testbed.rng.uniform(0, 1))
    await group.add()


# --- planned
# ------------------------------------------------------------------------------------------------------------


async def rolling_restart(testbed: FaultTestbed) -> None:
    for node in testbed.cluster.nodes:
        if node.pid is None:
            continue
        testbed.say(f"SIGTERM of {node}")
        await testbed.terminate(node)
        await testbed.cluster.start(node)
        await testbed.cluster.until_ready()
    testbed.say("every broker was restarted")


async def drain(testbed: FaultTestbed) -> None:
    node = await testbed.victim("a primary", 0)
    testbed.say(f"drains {node}")
    async with await testbed.cluster.connect() as client:
        await client.admin.drain(testbed.cluster.network.advertise(node.index))
    for topic in testbed.all_topics:
        if node in await testbed.cluster.replicas(topic, 0) + await testbed.cluster.replicas(topic, 1):
            testbed.exits.append(f"{node} was drained and still has segments of {topic}")
    await testbed.terminate(node)
    await testbed.cluster.start(node)


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        *(kill_primary, kill_follower, kill_leader, kill_coordinator, kill_all, kill_all_but_one, torn_write),
        *(freeze_primary, freeze_follower, freeze_leader, freeze_coordinator, terminate_rejoining),
        *(cut_pair, cut_pair_one_way, cut_off, cut_etcd, cut_etcd_there, cut_etcd_back, cut_etcd_leader),
        cut_etcd_all,
        *(cut_kafka, hang_up_kafka),
        *(kill_etcd, freeze_etcd, etcd_snapshot_restore, etcd_lost, etcd_quota),
        *(storage_full, storage_unmounted, storage_read_only, clock_step, few_descriptors),
        *(rolling_restart, drain),
        *(split, merge, move, recreate, kill_member, freeze_member),
    )
}
ALONE = (rolling_restart, drain, etcd_snapshot_restore, etcd_lost)
"""Faults that need a healthy cluster, so that no other fault may strike meanwhile."""
NEEDS_PAIRS = (cut_pair, cut_pair_one_way)
NEEDS_MEMBERS = (kill_member, freeze_member)
NEEDS_KAFKA = (cut_kafka, hang_up_kafka)
NEEDS_KAFKA_GROUP = (kill_coordinator, freeze_coordinator)
NEEDS_NATIVES = (split, merge)
NEEDS_LIMITED_STORAGE = (storage_full,)
NEEDS_MOUNT = (storage_unmounted, storage_read_only)
NEEDS_CLOCKS = (clock_step,)


async def restore(cluster: Cluster) -> None:
    """Repair everything: the network, the processes, the storage and the cluster."""
    await cluster.network.heal()
    if cluster.mount is not None and not cluster.mount.is_mounted:
        await asyncio.to_thread(cluster.mount.mount)
    await asyncio.to_thread(filler(cluster).unlink, missing_ok=True)
    if cluster.etcd.pid is not None:
        cluster.etcd.thaw()
    await cluster.etcd.start()
    for node in cluster.nodes:
        node.etcd.heal()
        node.kafka.heal()
        cluster.signal(node, signal.SIGCONT)
    for node in cluster.nodes:
        await cluster.start(node)
    await cluster.until_ready()
