"""A query that copies a topic into another one, under changes of the topics and failures of brokers and drivers.

The model of the whole query (``tests/spark/test_copy_model.py``, a hundred seeds) and those of both ends
(``tests/core/lineage/test_stream_model.py``, ``tests/client/publish/test_staged_publisher.py``) test the same; here the
processes are real: Spark, brokers, etcd, files and SIGKILL. A seed determines the times of kills and changes. Each has
all kills and all changes, and starts Spark six times: ``make test`` plays one, ``make test-deep`` more.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

import seaweedmq
from seaweedmq.errors import StaleMetadata
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.file_io import TEMPORARY_PREFIX
from seaweedmq.storage.jobs.compacting import compact_topic
from seaweedmq.storage.jobs.verifying import verify_topic
from seaweedmq.storage.staging import DONE, MANIFEST, StagedSink
from tests.support.commands import Cluster, running_cluster

pytestmark = pytest.mark.integration

SEEDS = 4 if settings.default.max_examples > 100 else 1
"""Number of seeds; the profile "deep" has more."""
SOURCE, COPY = "shop/orders", "shop/copies"
ROOT = Path(__file__).parents[2]
KEYS = 30
KEYLESS_EVERY = 25
BURST = 30
"""Number of records, published ten times a second."""
BATCH_RECORDS = 1_500
WAIT_S = 180.0
CHANGES_MAX = 100
SETTINGS = {"log_roll_age_s": 0.5, "maintenance_interval_s": 0.2, "log_grace_s": 60.0, "conversion_delay_s_max": 0.1}
"""Settings with which logs become tables while a batch is read, so that a repeated batch reads other files.

Logs outlive a restart of the driver, a minute on a slow machine: tables lack the producers of their rows, and a batch
that was begun in a segment whose brokers are dead is looked up in its logs.
"""


class Point(Enum):
    """State of a batch at which a driver is killed."""

    PLANNED = "Spark has noted what the batch reads"
    STAGED = "a task has begun to put down rows"
    PROMISED = "the manifest is there, so the batch counts"
    PUBLISHED = "all rows are committed, and Spark does not know it"
    NOTED = "Spark has noted that the batch is done"


class Traffic:
    """A publisher of numbered records of each key, and some without one, while the ``with`` block runs."""

    def __init__(self, client: "seaweedmq.Client") -> None:
        self._client = client
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.error: BaseException | None = None

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(WAIT_S)

    def key(self, number: int) -> bytes | None:
        return b"k%d" % (number % KEYS) if number % KEYLESS_EVERY else None

    def expected(self) -> dict[bytes | None, list[int]]:
        """Numbers of each key, in order."""
        found = defaultdict(list)
        for number in range(self.sent):
            found[self.key(number)].append(number)
        return found

    def _run(self) -> None:
        try:
            with self._client.publisher(SOURCE) as publisher:
                while not self._ending.wait(0.1):
                    for number in range(self.sent, self.sent + BURST):
                        publisher.send(b"%d" % number, key=self.key(number))
                    self.sent += BURST
                publisher.flush(timeout=WAIT_S)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self.error = error


class Copying:
    """The query, in a separate process that is killed and restarted."""

    def __init__(self, cluster: Cluster, storage: Path, directory: Path) -> None:
        self._cluster = cluster
        self._storage = storage
        self._directory = directory
        self._checkpoint = directory / "checkpoint"
        self._driver: subprocess.Popen[bytes] | None = None
        self._frames: set[Path] = set()
        """Frames that were staged when the driver was started."""

    def start(self, *, ends: bool = False) -> None:
        where = {"storage": str(self._storage), "bootstrap": self._cluster.addresses}
        limit = {} if ends else {"maxRecordsPerTrigger": BATCH_RECORDS}  # the rest is copied in one batch
        given = {
            "source": where | {"topic": SOURCE, "startingOffsets": "earliest"} | limit,
            "copy": where | {"topic": COPY},
            "checkpoint": str(self._checkpoint),
            "scratch": str(self._directory / "scratch"),
            "ends": ends,
        }
        command = [sys.executable, "-m", "tests.spark.copy_driver", json.dumps(given)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        self._frames = set(self._staged("*/*/*.frames"))
        with self._log.open("ab") as log:
            self._driver = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=environment, cwd=ROOT
            )

    def wait_for(self, point: Point, batch: int) -> None:
        """Wait until the running driver has brought the batch to this point, or further."""
        folder = self._sink_folder / f"{batch:020d}"
        has_manifest = (folder / MANIFEST).exists()  # of an earlier driver: this one has to stage again
        noted = self._checkpoint / "commits" / str(batch)

        def is_published() -> bool:
            return self._published() >= batch

        def is_staged() -> bool:
            return not self._frames.issuperset(folder.glob("*.frames"))

        reached: dict[Point, Callable[[], bool]] = {
            Point.PLANNED: (self._checkpoint / "offsets" / str(batch)).exists,
            Point.STAGED: is_staged,
            Point.PROMISED: is_staged if has_manifest else (folder / MANIFEST).exists,
            Point.PUBLISHED: is_published,
            Point.NOTED: noted.exists,
        }
        self._until(lambda: reached[point]() or noted.exists() or (point is not Point.NOTED and is_published()))

    def kill(self, *, alone: bool) -> None:
        """Send SIGKILL to the driver and its JVM, whose workers outlive them for a moment, or to all processes."""
        assert self._driver is not None
        for process in session(self._driver.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                if not alone or process.pid == self._driver.pid or process.name() == "java":
                    process.kill()
        self._driver.wait()

    def finish(self) -> None:
        """Copy the remaining records."""
        self.start(ends=True)
        assert self._driver is not None
        assert self._driver.wait(WAIT_S) == 0, self.log_end()

    def close(self) -> None:
        """End all processes."""
        if self._driver is not None:
            for process in session(self._driver.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._driver.wait()

    def state(self, batch: int) -> str:
        """Progress of a batch, for messages: it continued between the check and the kill."""
        reached = {
            "planned": self._checkpoint / "offsets" / str(batch),
            "promised": self._sink_folder / f"{batch:020d}" / MANIFEST,
            "noted": self._checkpoint / "commits" / str(batch),
        }
        return ", ".join(name for name, path in reached.items() if path.exists())

    def next_batch(self, point: Point) -> int:
        """Number of the first batch that does not exist yet."""
        if point is Point.PLANNED:
            return self._newest("offsets") + 1
        noted = self._newest("commits")
        return (noted if point is Point.NOTED else max(noted, self._published())) + 1

    def left_over(self) -> list[str]:
        """Return the staged batches. Temporary files of a killed writer are swept a day later."""
        return sorted(p.name for p in self._staged("*/*") if p.name != DONE and not p.name.startswith(TEMPORARY_PREFIX))

    def log_end(self) -> str:
        return self._log.read_text()[-5_000:]

    @property
    def _log(self) -> Path:
        return self._directory / "driver.log"

    @property
    def _sink_folder(self) -> Path:
        """Id of the query, known once Spark has assigned it."""
        metadata = self._checkpoint / "metadata"
        self._until(lambda: metadata.exists() and metadata.read_text().rstrip().endswith("}"))
        return self._storage / "topics" / COPY / ".staged" / f"q-{json.loads(metadata.read_text())['id']}"

    def _staged(self, pattern: str) -> Iterator[Path]:
        return (self._storage / "topics" / COPY / ".staged").glob(pattern)

    def _published(self) -> int:
        done = StagedSink(DirectoryPlace(self._storage), TopicName.parse(COPY), self._sink_folder.name).done()
        return -1 if done is None else done.batch

    def _newest(self, kind: str) -> int:
        return max((int(path.name) for path in (self._checkpoint / kind).glob("[0-9]*")), default=-1)

    def _until(self, condition: Callable[[], bool]) -> None:
        driver, end = self._driver, time.monotonic() + WAIT_S
        assert driver is not None
        while not condition():
            assert driver.poll() is None, self.log_end()
            assert time.monotonic() < end, f"the point is not reached: {self.log_end()}"
            time.sleep(0.001)


def session(leader: int) -> list[psutil.Process]:
    """Return all processes of a session: Spark's Python workers have separate groups."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == leader:
                found.append(process)
    return found


class Changes:
    """The changes of the topics and their brokers."""

    def __init__(self, cluster: Cluster, client: "seaweedmq.Client", storage: Path, rng: random.Random) -> None:
        self._cluster = cluster
        self._client = client
        self._storage = storage
        self._rng = rng
        self.merged_tables = 0

    def split(self, topic: str) -> None:
        self._change(topic, lambda found: self._client.admin.split_segment(topic, self._rng.choice(found).id))

    def merge(self, topic: str) -> None:
        def merge_neighbours(found: list[Any]) -> None:
            at = self._rng.randrange(len(found) - 1)
            self._client.admin.merge_segments(topic, found[at].id, found[at + 1].id)

        self._change(topic, merge_neighbours)

    def kill_a_primary(self, topic: str) -> None:
        description = self._client.admin.describe_topic(topic)
        segment = self._rng.choice([s for s in description.segments if s.is_open])
        os.kill(self._cluster.pid_at(description.addresses[segment.primary]), signal.SIGKILL)

    def compact(self, topic: str) -> None:
        """Merges become due within seconds, since logs are rolled all the time."""
        end = time.monotonic() + WAIT_S
        while True:
            found = compact_topic(DirectoryPlace(self._storage), TopicName.parse(topic))
            assert not found.problems, found.problems
            self.merged_tables += found.merged
            if found.made:
                return
            assert time.monotonic() < end, "no table appears"
            time.sleep(0.1)

    def _change(self, topic: str, change: Callable[[list[Any]], object]) -> None:
        """Return the open segments by their slots: successors if these were sealed, as with a lost broker."""
        for _ in range(CHANGES_MAX):
            segments = self._client.admin.describe_topic(topic).segments
            try:
                change(sorted((segment for segment in segments if segment.is_open), key=lambda segment: segment.slots))
            except StaleMetadata:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"{topic} does not come to rest")


def in_order(records: Iterable[Any]) -> dict[bytes | None, list[tuple[int, Any]]]:
    """Numbers and times of each key in the order of a topic; those without a key have no order."""
    found: dict[bytes | None, list[tuple[int, Any]]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.offset):  # a successor continues the offsets
        found[record.key].append((int(record.value), record.timestamp))
    found[None].sort()
    return found


def everything(client: "seaweedmq.Client", topic: str) -> dict[bytes | None, list[tuple[int, Any]]]:
    with client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
        return in_order(subscriber)


@pytest.mark.deep
@pytest.mark.examples
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_copy_is_whole_and_in_order_whatever_happens_to_driver_brokers_and_topics(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    points = rng.sample(list(Point), len(Point))
    config, storage = tmp_path / "broker.toml", tmp_path / "data" / "storage"
    config.write_text("".join(f"{name} = {value}\n" for name, value in SETTINGS.items()))
    with (
        running_cluster(tmp_path / "data", brokers=3, config=config) as cluster,
        seaweedmq.connect(cluster.addresses) as client,
        contextlib.closing(Copying(cluster, storage, tmp_path)) as copying,
    ):
        for topic in (SOURCE, COPY):
            client.admin.create_topic(topic, segments=2, replicas=2, scaling="fixed")
        changes = Changes(cluster, client, storage, rng)
        happens: list[Callable[[], None]] = [
            *(partial(change, SOURCE) for change in (changes.split, changes.merge)),
            *(partial(change, SOURCE) for change in (changes.compact, changes.compact, changes.kill_a_primary)),
            *(partial(change, COPY) for change in (changes.split, changes.merge)),
        ]
        rng.shuffle(happens)
        while_running: dict[int, list[Callable[[], None]]] = defaultdict(list)
        while_down: dict[int, list[Callable[[], None]]] = defaultdict(list)
        for number, change in enumerate(happens):
            rng.choice((while_running, while_down))[number % len(points)].append(change)
        with Traffic(client) as traffic:
            for turn, point in enumerate(points):
                copying.start()
                if while_running[turn]:
                    copying.wait_for(Point.NOTED, copying.next_batch(Point.NOTED))
                    for change in while_running[turn]:
                        change()
                at = copying.next_batch(point) + rng.randrange(3)
                copying.wait_for(point, at)
                copying.kill(alone=rng.random() < 0.5)
                print(
                    f"{point.name} of {at} was waited for: it was {copying.state(at)}; {traffic.sent} published",
                    flush=True,
                )
                for change in while_down[turn]:
                    change()
        assert traffic.error is None, traffic.error
        copying.finish()
        source = everything(client, SOURCE)
        assert {key: [n for n, _ in found] for key, found in source.items()} == traffic.expected()
        assert (everything(client, COPY), copying.left_over()) == (source, [])
        assert changes.merged_tables > 0
        assert verify_topic(DirectoryPlace(storage), TopicName.parse(SOURCE)).is_sound
