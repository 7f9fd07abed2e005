"""Claims: a heartbeat and a small produce have a p99 of at most 3 times the quiet one beside each API at its largest
request, beside 1,000 idle and 1,000 half-open connections, and beside 50 that flood.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from multiprocessing.synchronize import Event
from threading import Thread

import seaweedmq
from benchmarks.cluster import running_cluster, scratch
from benchmarks.contest.process import SPAWN, ClientProcess
from benchmarks.kafka.batches import batch_of
from benchmarks.kafka.wire import Wire, coordinator_of, encoded, produce_head
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.scale import Scale
from seaweedmq.kafka.wire.frames import elements_max
from seaweedmq.kafka.wire.messages import API, REQUESTS

RATIO_MAX = 3.0
SECONDS, SECONDS_QUICK = 3.0, 0.5
ROUNDS = 3
IDLE, HALF_OPEN, FLOODING = 1_000, 1_000, 50
TOPIC, GROUP = "neighbors", "neighbors"
RECORD_BYTES = 100
CONTROL_EVERY_S = 0.002
"""Pause between two measured requests, long enough that they add no load of their own."""


def run(scale: Scale) -> list[Measure]:
    """Run one broker; measure the quiet figures again before each neighbor."""
    seconds = SECONDS_QUICK if scale.quick else SECONDS
    rounds = 1 if scale.quick else ROUNDS
    measures: list[Measure] = []
    with (
        scratch(scale.directory) as folder,
        running_cluster(folder / "data", kafka=True) as cluster,
        seaweedmq.connect(cluster.bootstrap) as client,
    ):
        client.admin.create_topic(f"kafka/{TOPIC}", partitions=1, durability="replicated")
        address = coordinator_of(cluster.kafka, GROUP)
        for name in NEIGHBORS:
            quiet, beside = [], []
            for _ in range(rounds):
                quiet.append(_p99s(address, seconds))
                stop, ready = SPAWN.Event(), SPAWN.Event()
                with ClientProcess(disturb, name=name, address=address, stop=stop, ready=ready) as neighbor:
                    neighbor.expect(ready)
                    beside.append(_p99s(address, seconds))
                    stop.set()
                    requests = neighbor.result()
            for call in ("heartbeat", "produce"):
                of = f"{call} p99, before {name}"
                before, while_there = [one[call] for one in quiet], [one[call] for one in beside]
                measures += [
                    yardstick(of, before, "ms"),
                    compared(
                        f"kafka_{call}_p99_beside_{name}",
                        while_there,
                        "ms",
                        of,
                        before,
                        ratio_max=scale.target(RATIO_MAX),
                        requests=requests,
                    ),
                ]
    return measures


def _p99s(address: str, seconds: float) -> Mapping[str, float]:
    """The p99 of a heartbeat and of a produce, in ms."""
    batch = batch_of([b"x" * RECORD_BYTES])
    beat = encoded(API.HEARTBEAT, 3, group_id=GROUP, generation_id=1, member_id="m", group_instance_id=None)
    calls = {"heartbeat": beat, "produce": produce_head(TOPIC, len(batch)) + batch}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    with Wire(address) as wire:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for name, request in calls.items():
                began = time.perf_counter()
                wire.send(request)
                wire.receive()
                taken[name].append((time.perf_counter() - began) * 1_000)
                time.sleep(CONTROL_EVERY_S)
    return {name: sorted(took)[int(len(took) * 0.99)] for name, took in taken.items()}


def disturb(name: str, address: str, stop: Event, ready: Event) -> int:
    """Do to a broker what the neighbor of this name does, until told to stop; return its requests."""
    return NEIGHBORS[name](address, stop, ready)


def _largest(request: Callable[[], bytes], address: str, stop: Event, ready: Event) -> int:
    """One request after another."""
    data = request()
    with Wire(address) as wire:
        for number in count():
            if stop.is_set():
                return number
            wire.send(data)
            ready.set()
            wire.receive()
    raise AssertionError("unreachable")


def _idle(address: str, stop: Event, ready: Event) -> int:
    with _connections(address, IDLE):
        ready.set()
        stop.wait()
    return 0


def _half_open(address: str, stop: Event, ready: Event) -> int:
    """Each sends the beginning of a request of 1 MiB."""
    with _connections(address, HALF_OPEN) as connections:
        for one in connections:
            one.sendall(struct.pack(">ihhi", 1 << 20, API.PRODUCE, 8, 1))
        ready.set()
        stop.wait()
    return 0


def _flood(address: str, stop: Event, ready: Event) -> int:
    """Each asks for metadata as fast as it is answered."""
    done = [0] * FLOODING
    request = encoded(API.METADATA, 4, topics=_named(1), allow_auto_topic_creation=False)

    def ask(number: int) -> None:
        with Wire(address) as wire:
            while not stop.is_set():
                wire.send(request)
                wire.receive()
                done[number] += 1

    threads = [Thread(target=ask, args=(number,)) for number in range(FLOODING)]
    for thread in threads:
        thread.start()
    ready.set()
    for thread in threads:
        thread.join()
    return sum(done)


@contextlib.contextmanager
def _connections(address: str, number: int) -> Iterator[Sequence[socket.socket]]:
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(number)]


def _named(number: int) -> list[object]:
    make = REQUESTS[API.METADATA].MetadataRequestTopic
    return [make(name=TOPIC if not one else f"t{one}") for one in range(number)]


def _metadata() -> bytes:
    return encoded(API.METADATA, 4, topics=_named(elements_max(API.METADATA)), allow_auto_topic_creation=False)


def _describe_groups() -> bytes:
    return encoded(API.DESCRIBE_GROUPS, 0, groups=[f"g{n}" for n in range(elements_max(API.DESCRIBE_GROUPS))])


def _delete_groups() -> bytes:
    return encoded(API.DELETE_GROUPS, 0, groups_names=[f"g{n}" for n in range(elements_max(API.DELETE_GROUPS))])


def _find_coordinators() -> bytes:
    keys = [f"g{n}" for n in range(elements_max(API.FIND_COORDINATOR))]
    return encoded(API.FIND_COORDINATOR, 4, coordinator_keys=keys, key_type=0)


def _commit() -> bytes:
    make = REQUESTS[API.OFFSET_COMMIT].OffsetCommitRequestTopic
    of_each = make.OffsetCommitRequestPartition
    parts = [
        of_each(partition_index=n, committed_offset=1, committed_metadata="")
        for n in range(elements_max(API.OFFSET_COMMIT) - 1)
    ]
    topics = [make(name=TOPIC, partitions=parts)]
    fields = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
    return encoded(API.OFFSET_COMMIT, 2, topics=topics, **fields)


def _fetch_offsets() -> bytes:
    make = REQUESTS[API.OFFSET_FETCH].OffsetFetchRequestTopic
    indexes = list(range(elements_max(API.OFFSET_FETCH) - 1))
    return encoded(API.OFFSET_FETCH, 5, group_id=GROUP, topics=[make(name=TOPIC, partition_indexes=indexes)])


def _list_offsets() -> bytes:
    make = REQUESTS[API.LIST_OFFSETS].ListOffsetsTopic
    parts = [
        make.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(elements_max(API.LIST_OFFSETS) - 1)
    ]
    return encoded(API.LIST_OFFSETS, 2, replica_id=-1, isolation_level=0, topics=[make(name=TOPIC, partitions=parts)])


def _fetch() -> bytes:
    make = REQUESTS[API.FETCH].FetchTopic
    parts = [
        make.FetchPartition(
            partition=n, fetch_offset=0, current_leader_epoch=-1, log_start_offset=-1, partition_max_bytes=1
        )
        for n in range(elements_max(API.FETCH) - 1)
    ]
    return encoded(
        API.FETCH,
        11,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[make(topic=TOPIC, partitions=parts)],
        forgotten_topics_data=[],
        rack_id="",
    )


def _create_topics() -> bytes:
    """They are only checked: what is made would be measured, and would stay."""
    make = REQUESTS[API.CREATE_TOPICS].CreatableTopic
    topics = [
        make(name=f"t{n}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for n in range(elements_max(API.CREATE_TOPICS))
    ]
    return encoded(API.CREATE_TOPICS, 2, topics=topics, timeout_ms=1_000, validate_only=True)


def _delete_topics() -> bytes:
    names = [f"t{n}" for n in range(elements_max(API.DELETE_TOPICS))]
    return encoded(API.DELETE_TOPICS, 3, topic_names=names, timeout_ms=1_000)


def _describe_configs() -> bytes:
    make = REQUESTS[API.DESCRIBE_CONFIGS].DescribeConfigsResource
    resources = [
        make(resource_type=2, resource_name=TOPIC, configuration_keys=None)
        for _ in range(elements_max(API.DESCRIBE_CONFIGS))
    ]
    return encoded(API.DESCRIBE_CONFIGS, 1, resources=resources, include_synonyms=True)


LARGEST: Mapping[str, Callable[[], bytes]] = {
    "metadata": _metadata,
    "fetch": _fetch,
    "list_offsets": _list_offsets,
    "offset_commit": _commit,
    "offset_fetch": _fetch_offsets,
    "describe_groups": _describe_groups,
    "delete_groups": _delete_groups,
    "find_coordinator": _find_coordinators,
    "create_topics": _create_topics,
    "delete_topics": _delete_topics,
    "describe_configs": _describe_configs,
}
"""The largest requests, by API: those whose elements cost something."""
NEIGHBORS: Mapping[str, Callable[[str, Event, Event], int]] = {
    "idle": _idle,
    "half_open": _half_open,
    "flood": _flood,
    **{name: partial(_largest, request) for name, request in LARGEST.items()},
}
"""Neighbors by name. Each works until it is stopped and returns the number of its requests."""
