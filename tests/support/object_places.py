"""Places of object stores in memory, and topics on them."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from seaweedmq.codec.object_keys import LogObject, TopicKey
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.logs.log_scan import LogScanner
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.objects.blocking import BlockingObjects
from tests.doubles.memory_objects import MemoryBucket, MemoryObjects
from tests.support.moto_server import MotoServer
from tests.support.topic_files import TopicFiles


def memory_place(bucket: MemoryBucket | None = None) -> ObjectPlace:
    """Return a storage in memory: the one of a bucket, or an empty one with the clock of this machine."""
    return ObjectPlace(BlockingObjects(MemoryObjects(bucket or MemoryBucket(lambda: time.time_ns() // 1_000))))


def put_topic(place: ObjectPlace, files: TopicFiles) -> None:
    """Copy the documents and log files of a directory, as brokers put them into an object store."""
    for name in (TOPIC_DOCUMENT, LINEAGE_DOCUMENT):
        path = document_path(files.name, name)
        place.replace(path, (files.root / path).read_bytes())
    key = TopicKey(files.name, files.uid)
    for number in files.segments:
        for log in files.files(number):
            if log.kind is FileKind.LOG:
                put = LogObject(key, number, log.base_offset, _end(files, log), log.writer).key
                place.create(put, (files.root / log.path).read_bytes())


def _end(files: TopicFiles, log: SegmentFile) -> int:
    scanner = LogScanner(files.topic, log)
    with closing(DirectoryPlace(files.root).open_input(log)) as source:
        deque(scanner.runs(source), maxlen=0)
    return scanner.next_offset


@contextmanager
def moto_place(moto: MotoServer) -> Iterator[ObjectPlace]:
    """Provide an empty storage on a server of S3, which processes started meanwhile find as well."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in moto.environment().items():
            patch.setenv(name, value)
        yield ObjectPlace.parse(f"s3://{moto.new_bucket()}/some prefix")
