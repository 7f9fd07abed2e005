"""Payloads by reference in the synchronous API: ``value`` fetches, ``open()`` is a file that is read in order."""

import io
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import seaweedmq
from seaweedmq.client.subscribe.payloads import CHUNK_BYTES
from seaweedmq.codec.paths import blob_name
from seaweedmq.errors import PayloadLost
from seaweedmq.model.topic import TopicName
from tests.client.fake_broker import FakeCluster
from tests.support.references import reference_to, referring_frame

TOPIC = "shop/films"
FILM = b"".join(b"%08d" % n for n in range(CHUNK_BYTES // 4))


@pytest.fixture
def film(client: seaweedmq.Client, cluster: FakeCluster) -> seaweedmq.Message:
    """Return a message that refers to ``FILM``."""
    client.admin.create_topic(TOPIC)
    name = TopicName.parse(TOPIC)
    uri = blob_name(name, cluster.topics[name].uid, "2020-09-13", "0" * 32).uri
    cluster.blobs[uri] = FILM
    cluster.store_frame(TOPIC, referring_frame([(b"film", reference_to(uri, FILM))]))
    with client.subscriber(TOPIC, start="earliest", limit=1) as subscriber:
        (message,) = subscriber
    return message


def test_the_value_is_the_payload(film: seaweedmq.Message) -> None:
    assert film.reference is not None
    assert film.reference.size_bytes == len(FILM)
    assert film.value == FILM


def test_the_payload_is_a_file(film: seaweedmq.Message, tmp_path: Path) -> None:
    with film.open() as file:
        assert isinstance(file, io.RawIOBase)
        assert (file.read(8), file.readable(), file.seekable()) == (FILM[:8], True, False)
        with (tmp_path / "film").open("wb") as copy:
            shutil.copyfileobj(file, copy)
        assert file.read(1) == b""
    assert (tmp_path / "film").read_bytes() == FILM[8:]
    with pytest.raises(ValueError, match="closed file"):
        file.read(1)
    with film.open() as file:
        assert file.readall() == FILM
    with io.BufferedReader(film.open()) as buffered:
        assert buffered.readline() == FILM


def test_a_plain_value_is_a_file_as_well(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    with client.publisher(TOPIC) as publisher:
        publisher.send(b"small")
        publisher.send(b"")
    with client.subscriber(TOPIC, start="earliest", limit=2) as subscriber:
        contents = [message.open().read() for message in subscriber]
    assert contents == [b"small", b""]


def test_a_copy_of_a_changed_payload_fails(film: seaweedmq.Message, cluster: FakeCluster, tmp_path: Path) -> None:
    assert film.reference is not None
    cluster.blobs[film.reference.uri] = b"!" + FILM[1:]
    with film.open() as file, (tmp_path / "film").open("wb") as copy, pytest.raises(PayloadLost, match="SHA-256"):
        shutil.copyfileobj(file, copy)
    assert (tmp_path / "film").stat().st_size < len(FILM)
    with film.open() as file:
        with pytest.raises(PayloadLost, match="SHA-256"):
            file.readall()
        with pytest.raises(PayloadLost, match="SHA-256"):
            file.read(1)


def test_a_payload_is_copied_although_few_threads_are_left(
    client: seaweedmq.Client, cluster: FakeCluster, film: seaweedmq.Message
) -> None:
    loop = client._background.loop  # noqa: SLF001 - as on a machine with few processors, or with many publishers
    with ThreadPoolExecutor(1) as threads:
        loop.call_soon_threadsafe(loop.set_default_executor, threads)
        publisher = client.publisher(TOPIC)
        sent = publisher.send_stream(film.open())
        publisher.close(timeout=20)
        sent.result()
    assert FILM in cluster.payloads.values()
