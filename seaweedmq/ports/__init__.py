"""Interfaces of brokers and clients to the outside, by what they connect to. Import them from this package."""

from seaweedmq.ports.blobs import BlobReader
from seaweedmq.ports.brokers import BrokerApi, Dialer, LeaderApi
from seaweedmq.ports.environment import Environment, loop_s
from seaweedmq.ports.metadata import Changes, Compare, Delete, Entry, MetaStore, Put, Snapshot
from seaweedmq.ports.objects import (
    PART_BYTES,
    TIMEOUT_S,
    Buffers,
    ObjectContent,
    ObjectFolder,
    Objects,
    ObjectState,
    ObjectWriter,
)
from seaweedmq.ports.storage import (
    BlobStore,
    BlockingInput,
    DirectoryLogs,
    DirectoryStore,
    LogObjects,
    LogReader,
    LogWriter,
    PartWriter,
    SegmentStore,
    StorageSpace,
    StoredBlob,
    StoredFiles,
)
from seaweedmq.ports.tables import TableConverter

__all__ = [
    "PART_BYTES",
    "TIMEOUT_S",
    "BlobReader",
    "BlobStore",
    "BlockingInput",
    "BrokerApi",
    "Buffers",
    "Changes",
    "Compare",
    "Delete",
    "Dialer",
    "DirectoryLogs",
    "DirectoryStore",
    "Entry",
    "Environment",
    "LeaderApi",
    "LogObjects",
    "LogReader",
    "LogWriter",
    "MetaStore",
    "ObjectContent",
    "ObjectFolder",
    "ObjectState",
    "ObjectWriter",
    "Objects",
    "PartWriter",
    "Put",
    "SegmentStore",
    "Snapshot",
    "StorageSpace",
    "StoredBlob",
    "StoredFiles",
    "TableConverter",
    "loop_s",
]
