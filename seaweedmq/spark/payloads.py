"""Payloads by reference in Spark: executors read them from the storage themselves, and verify each.

The column ``reference`` carries its storage, topic and uid as metadata, so that a DataFrame is enough to find the
payloads, and so that a record resolves only those of its own topic.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual alias
from pyspark.sql.types import BinaryType, StructField, StructType

from seaweedmq.codec.arrays import OFFSET_MAX, binary_of
from seaweedmq.codec.references import reference_of
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import MIB
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.payloads import fetch_payload

REFERENCE: Final = "reference"
VALUE: Final = "value"
BATCH_BYTES: Final = 64 * MIB
"""Bytes of payloads beyond which a task passes a batch on; one larger payload is a batch of its own."""
_STORAGE: Final = "seaweedmq.storage"
_TOPIC: Final = "seaweedmq.topic"
_UID: Final = "seaweedmq.topic_uid"


def reference_metadata(topic: Topic, storage: str | None) -> dict[str, str]:
    """Return the metadata of the column ``reference`` of a topic; ``storage`` is None if only brokers are known."""
    found = {_TOPIC: str(topic.name), _UID: str(topic.uid)}
    return found if storage is None else {**found, _STORAGE: str(DirectoryPlace.parse(storage))}


def with_metadata(schema: StructType, metadata: Mapping[str, str]) -> StructType:
    """Return a schema whose column ``reference``, if there is one, has this metadata; none if it is empty."""
    return StructType(
        [
            StructField(f.name, f.dataType, f.nullable, dict(metadata)) if f.name == REFERENCE else f
            for f in schema.fields
        ]
    )


def fetch(frame: DataFrame, *, storage: str | os.PathLike[str] | None = None) -> DataFrame:
    """Return a DataFrame whose ``value`` has the payload of each record by reference, fetched and verified.

    Executors read the payloads from the storage, so they need it mounted, and ``pip install 'seaweedmq[spark]'``. A
    task holds about 64 MiB of payloads, or one larger one. Select the records first: each is fetched whenever the
    result is computed.

    Args:
        frame: A DataFrame with the column ``reference`` of a read with the option ``includeReferences``, unchanged. If
            it has no column ``value``, that is added.
        storage: Root of the storage; that of the read by default.

    Raises:
        InvalidArgument: If the DataFrame has no such column, or no storage is known.

    The query fails with ``PayloadLost`` if a payload is missing, changed, cut short, or not one of the record's topic,
    and with ``InvalidArgument`` if one is too large for a column of Spark, which is 2 GiB.
    """
    fields = {field.name: field for field in frame.schema.fields}
    known = fields[REFERENCE].metadata if REFERENCE in fields else {}
    if not {_TOPIC, _UID} <= known.keys():
        raise InvalidArgument(
            f"the DataFrame has no column {REFERENCE!r} of a topic: read it with the option includeReferences=true, "
            "and keep the column as it is"
        )
    root = known.get(_STORAGE) if storage is None else os.fspath(storage)
    if root is None:
        raise InvalidArgument("the DataFrame was read from brokers alone: give storage=, which executors can read")
    place, topic, topic_uid = DirectoryPlace.parse(root), TopicName.parse(known[_TOPIC]), int(known[_UID])

    def fetch_all(references: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return fetched(place, topic, topic_uid, references)

    payload = F.arrow_udf(fetch_all, BinaryType())(F.col(REFERENCE))
    return frame.withColumn(VALUE, F.coalesce(F.col(VALUE), payload) if VALUE in fields else payload)


def fetched(
    place: DirectoryPlace, topic: TopicName, topic_uid: int, references: Iterator[pa.Array]
) -> Iterator[pa.Array]:
    """Yield the payloads of references in order, null for null, in arrays of bounded size.

    Raises:
        InvalidArgument: If a payload does not fit an array, before it is read.
        PayloadLost: As ``storage.payloads.fetch_payload``.
    """
    for column in references:
        payloads: list[bytes | None] = []
        size_bytes = 0
        for stored in column.to_pylist():
            reference = reference_of(stored)
            if reference is None:
                payloads.append(None)
                continue
            if reference.size_bytes > OFFSET_MAX:
                raise InvalidArgument(
                    f"payload {reference.uri} has {reference.size_bytes} bytes, and Spark holds at most {OFFSET_MAX} "
                    "in a value: leave its record out with a filter on reference.size, or read it with a subscriber"
                )
            if size_bytes and size_bytes + reference.size_bytes > BATCH_BYTES:
                yield binary_of(payloads)
                payloads, size_bytes = [], 0
            payloads.append(fetch_payload(place, reference, topic, topic_uid))
            size_bytes += reference.size_bytes
        yield binary_of(payloads)
