"""Files, streams and large values by reference, from a client through a real broker to the storage."""

import hashlib
import io
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import seaweedmq
from seaweedmq.codec.references import check_own, reference_of
from seaweedmq.errors import Closed, InvalidArgument
from seaweedmq.model.config import KIB, MIB
from seaweedmq.model.messages.blobs import PART_BYTES_MAX
from seaweedmq.model.reference import PayloadReference
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.blobs import read_blob
from seaweedmq.storage.directory_place import DirectoryPlace
from tests.support.commands import Cluster, running_cluster

pytestmark = pytest.mark.integration

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uploads")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    with running_cluster(folder / "data") as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[seaweedmq.Client]:
    with seaweedmq.connect(cluster.addresses) as connected:
        yield connected


@pytest.fixture
def topic(client: seaweedmq.Client, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"shop/{request.node.name.partition('[')[0]}"
    client.admin.create_topic(name)
    yield name
    client.admin.delete_topic(name)


def place_of(folder: Path) -> DirectoryPlace:
    return DirectoryPlace(folder / "data/storage")


def records(client: seaweedmq.Client, topic: str) -> list[tuple[bytes | None, bytes | PayloadReference]]:
    """The keys of all records, with their values or references."""
    found: list[tuple[bytes | None, bytes | PayloadReference]] = []
    with client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
        for batch in subscriber.batches():
            for row in batch.to_pylist():
                reference = reference_of(row.get("_reference"))
                found.append((row["_key"], row["_value"] if reference is None else reference))
    return found


def content(folder: Path, client: seaweedmq.Client, topic: str, value: bytes | PayloadReference) -> bytes:
    """The payload of a record, which is verified against its reference."""
    assert isinstance(value, PayloadReference)
    name = check_own(value, TopicName.parse(topic), client.admin.describe_topic(topic).topic.uid)
    data = read_blob(place_of(folder), name, 0, value.size_bytes + 1)
    assert len(data) == value.size_bytes
    assert hashlib.sha256(data).digest() == value.sha256
    return data


def a_file(folder: Path, name: str, size: int) -> Path:
    path = folder / name
    block = bytes(range(251)) * 4_000
    with path.open("wb") as file:
        while (left := size - file.tell()) > 0:
            file.write(block[:left])
    return path


@pytest.mark.parametrize("size", [0, 1, 3 * MIB, PART_BYTES_MAX, 2 * PART_BYTES_MAX + 1])
def test_a_file_of_any_size_is_a_record(folder: Path, client: seaweedmq.Client, topic: str, size: int) -> None:
    path = a_file(folder, f"file-{size}.json", size)
    with client.publisher(topic) as publisher:
        publisher.send_file(path, key=b"k", headers={"h": b"v"}, timestamp=1_000_000)
    ((key, value),) = records(client, topic)
    assert key == b"k"
    assert isinstance(value, PayloadReference)
    assert (value.content_type, value.part_bytes) == (
        "application/json",
        PART_BYTES_MAX if size > PART_BYTES_MAX else 0,
    )
    assert content(folder, client, topic, value) == path.read_bytes()


def test_records_of_a_key_keep_the_order_of_the_calls(folder: Path, client: seaweedmq.Client, topic: str) -> None:
    path = a_file(folder, "ordered.bin", 20 * MIB)
    with client.publisher(topic) as publisher:
        publisher.send(b"1", key=b"k")
        slow = publisher.send_file(path, key=b"k")
        publisher.send(b"3", key=b"k")
        stream = publisher.send_stream(io.BytesIO(b"4"), key=b"k")
        publisher.send(b"5", key=b"k")
        other = publisher.send(b"other", key=b"o")
        other.result(TIMEOUT_S)
        assert not slow.done(), "records of other keys do not wait"
        assert slow.result(TIMEOUT_S).offset < stream.result(TIMEOUT_S).offset
    of_key = [value for key, value in records(client, topic) if key == b"k"]
    assert [value for value in of_key if isinstance(value, bytes)] == [b"1", b"3", b"5"]
    sizes = [value.size_bytes if isinstance(value, PayloadReference) else value for value in of_key]
    assert sizes == [b"1", 20 * MIB, b"3", 1, b"5"]


def test_a_stream_of_unknown_size(folder: Path, client: seaweedmq.Client, topic: str) -> None:
    data = os.urandom(33 * MIB)
    read_end, write_end = os.pipe()
    with (
        subprocess.Popen([sys.executable, "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"],
                         stdin=subprocess.PIPE, stdout=write_end) as feeder,
        open(read_end, "rb") as stream,  # noqa: PTH123 - a descriptor
        client.publisher(topic) as publisher,
    ):  # fmt: skip
        os.close(write_end)
        sent = publisher.send_stream(stream, key=b"k", content_type="video/mp4")
        feeder.communicate(data)
        sent.result(TIMEOUT_S)
    ((_, value),) = records(client, topic)
    assert content(folder, client, topic, value) == data
    assert isinstance(value, PayloadReference)
    assert value.content_type == "video/mp4"


def test_a_value_above_the_limit_goes_by_reference(folder: Path, client: seaweedmq.Client, topic: str) -> None:
    large = os.urandom(17 * MIB)
    with client.publisher(topic) as publisher:
        publisher.send(large, key=b"default")
    with client.publisher(topic, reference_threshold=10 * KIB) as publisher:
        publisher.send(large[: 10 * KIB], key=b"small")
        publisher.send(large[: 10 * KIB + 1], key=b"large", headers={"h": b"v"})
    values = dict(records(client, topic))
    assert values[b"small"] == large[: 10 * KIB]
    assert content(folder, client, topic, values[b"large"]) == large[: 10 * KIB + 1]
    assert content(folder, client, topic, values[b"default"]) == large


def test_a_file_that_changes_is_one_error_and_stops_nothing(folder: Path, client: seaweedmq.Client, topic: str) -> None:
    path = a_file(folder, "growing.bin", 100)
    publisher = client.publisher(topic)
    with path.open("ab") as file:

        class Growing:
            """A stream that lets the file grow while the next payload of the key waits."""

            def read(self, size: int) -> bytes:
                file.write(b"more")
                file.flush()
                return b""

        first = publisher.send_stream(Growing(), key=b"k")  # type: ignore[arg-type]
        second = publisher.send_file(path, key=b"k")
        third = publisher.send(b"after", key=b"k")
        first.result(TIMEOUT_S)
        error = second.exception(TIMEOUT_S)
        third.result(TIMEOUT_S)
    publisher.close()
    if error is not None:  # else the file was read before it grew: both are right
        assert isinstance(error, InvalidArgument)
        assert "grew from 100 to 104 bytes while it was sent" in str(error)


def test_a_topic_with_a_schema_takes_no_payloads(folder: Path, client: seaweedmq.Client, topic: str) -> None:
    import pyarrow as pa

    with client.publisher(topic) as publisher:
        publisher.send_table(pa.table({"a": [1]})).result(TIMEOUT_S)
        with pytest.raises(InvalidArgument, match="publish tables of its columns"):
            publisher.send_file(a_file(folder, "plain.bin", 1))


def test_a_closed_publisher_takes_no_payloads(folder: Path, client: seaweedmq.Client, topic: str) -> None:
    publisher = client.publisher(topic)
    publisher.close()
    with pytest.raises(Closed):
        publisher.send_file(a_file(folder, "late.bin", 1))


def test_the_topic_is_deleted_with_its_payloads(folder: Path, client: seaweedmq.Client) -> None:
    client.admin.create_topic("shop/gone")
    uid = client.admin.describe_topic("shop/gone").topic.uid
    with client.publisher("shop/gone") as publisher:
        publisher.send_stream(io.BytesIO(b"x"))
    payloads = place_of(folder).path(f"blobs/shop/gone/{uid}")
    assert payloads.exists()
    client.admin.delete_topic("shop/gone")
    deadline = time.monotonic() + TIMEOUT_S
    while payloads.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


SENDER = textwrap.dedent("""
    import resource, sys
    import seaweedmq

    addresses, topic, path = sys.argv[1:]
    with seaweedmq.connect(addresses) as client, client.publisher(topic) as publisher:
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print("begun", flush=True)
        publisher.send_file(path, key=b"k").result()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib, flush=True)
""")


def sender(cluster: Cluster, topic: str, path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SENDER, cluster.addresses, topic, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def test_an_upload_resumes_after_a_sigkill_of_the_client(
    folder: Path, cluster: Cluster, client: seaweedmq.Client, topic: str
) -> None:
    path = a_file(folder, "killed.bin", 3 * PART_BYTES_MAX + 5)
    uid = client.admin.describe_topic(topic).topic.uid
    days = place_of(folder).path(f"blobs/{topic}/{uid}")
    deadline = time.monotonic() + TIMEOUT_S
    with sender(cluster, topic, path) as killed:
        while not (first := list(days.glob("*/.upload-*/00000"))):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        killed.kill()
    assert not list(days.glob("*/.upload-*/00003")), "the client was killed in the middle"
    inode = first[0].stat().st_ino
    with sender(cluster, topic, path) as again:
        assert again.wait(TIMEOUT_S) == 0
    (stored,) = days.glob("*/*/00000")
    assert stored.stat().st_ino == inode, "the part was not sent again"
    ((key, value),) = records(client, topic)
    assert key == b"k"
    data = content(folder, client, topic, value)
    assert hashlib.sha256(data).digest() == hashlib.sha256(path.read_bytes()).digest()
    assert not list(days.glob("*/.upload-*"))


@pytest.mark.measures
@pytest.mark.deep
def test_neither_end_holds_a_payload_in_memory(
    folder: Path, cluster: Cluster, client: seaweedmq.Client, topic: str
) -> None:
    path = a_file(folder, "large.bin", 2_048 * MIB)
    broker = psutil.Process(cluster.pids[0])
    before = peak = broker.memory_info().rss
    with sender(cluster, topic, path) as running:
        while running.poll() is None:
            peak = max(peak, broker.memory_info().rss)
            time.sleep(0.01)
        assert running.returncode == 0
        assert running.stdout is not None
        grown_kib = int(running.stdout.readline())
    path.unlink()
    print(f"client + {grown_kib / 1024:.0f} MiB, broker + {(peak - before) / MIB:.0f} MiB")
    assert grown_kib * 1024 <= 64 * MIB
    assert peak - before <= 64 * MIB


def test_the_command_publishes_files(folder: Path, cluster: Cluster, client: seaweedmq.Client, topic: str) -> None:
    paths = [a_file(folder, name, size) for name, size in (("a.txt", 5), ("b.mp4", 3 * MIB))]
    said = cluster.ok("publish", topic, "--file", *map(str, paths), "--key", "KEY")
    assert said.startswith(f"published 2 files to {topic} in ")
    found = records(client, topic)
    assert [key for key, _ in found] == [b"KEY", b"KEY"]
    assert [content(folder, client, topic, value) for _, value in found] == [path.read_bytes() for path in paths]


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("--file", "{file}", "{folder}"), 1, "is a directory: send its files one by one"),
        (("--file", "{file}", "{folder}/none"), 1, "cannot be read, No such file or directory"),
        (("{file}",), 2, "to upload files, name them after --file"),
        (("--file", "{file}", "--format", "csv"), 2, "files are published as they are"),
    ],
)
def test_the_command_publishes_nothing_if_one_file_is_wrong(
    folder: Path,
    cluster: Cluster,
    client: seaweedmq.Client,
    topic: str,
    arguments: tuple[str, ...],
    status: int,
    why: str,
) -> None:
    file = a_file(folder, "right.txt", 5)
    done = cluster.run("publish", topic, *(each.format(file=file, folder=folder) for each in arguments))
    assert done.status == status
    assert why in " ".join(done.stderr.replace("│", " ").split())
    assert records(client, topic) == []


def test_the_commands_verify_and_sweep_the_payloads(
    folder: Path, cluster: Cluster, client: seaweedmq.Client, topic: str
) -> None:
    storage = str(place_of(folder))
    path = a_file(folder, "swept.bin", 1_000)
    with client.publisher(topic) as publisher:
        publisher.send_file(path, key=b"k").result(TIMEOUT_S)
    said = cluster.ok("blobs", "verify", topic, "--storage", storage)
    assert said == f"{topic} is sound: 1 payloads with 1,000 bytes are as their records say\n"
    assert cluster.ok("blobs", "sweep", topic, "--storage", storage) == (
        f"{topic}: 0 payloads were deleted; records name 1\n"
    )
    ((_, value),) = records(client, topic)
    assert isinstance(value, PayloadReference)
    place_of(folder).path(value.uri).unlink()
    done = cluster.run("blobs", "verify", topic, "--storage", storage)
    assert f"1 of 1 payloads of {topic} are lost" in done.failure
    assert value.uri in done.text


def test_a_subscriber_reads_what_was_sent(folder: Path, client: seaweedmq.Client, topic: str) -> None:
    path = a_file(folder, "read.json", 3 * MIB)
    with client.publisher(topic) as publisher:
        publisher.send_file(path, key=b"file")
        publisher.send_stream(io.BytesIO(b""), key=b"empty")
        publisher.send(b"value", key=b"value")
    with client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
        messages = {message.key: message for message in subscriber}
        assert messages[b"file"].value == path.read_bytes()
        assert messages[b"empty"].value == b""
        assert messages[b"value"].value == b"value"
        reference = messages[b"file"].reference
        assert reference is not None
        assert reference.content_type == "application/json"
