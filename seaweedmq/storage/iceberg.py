"""Export of a topic's tables to Iceberg: the same files, registered with a catalog. Blocking.

It needs ``pip install "seaweedmq[iceberg]"``. The Delta log determines the live tables. They are registered under their
retained links, which outlive their replacement for a limited time: the next export must happen within it. Iceberg
stores absolute paths, so every reader must mount the storage at the same path.
"""

import itertools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from seaweedmq.codec.paths import table_dir
from seaweedmq.codec.tables.delta import Add
from seaweedmq.codec.tables.iceberg_schema import iceberg_columns, parts_of
from seaweedmq.codec.timestamps import us_of_text
from seaweedmq.core.files.holes import loss_text
from seaweedmq.errors import AlreadyExists, InvalidArgument, Unavailable, Unsupported
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.place import Place
from seaweedmq.storage.snapshot import TopicSnapshot, read_snapshot
from seaweedmq.storage.tables.delta.entries import declared_kinds, topic_columns
from seaweedmq.storage.tables.delta.log_state import LogState, read_state
from seaweedmq.storage.tables.delta.open_log import open_log
from seaweedmq.storage.tables.delta.updater import reconcile

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

log = logging.getLogger(__name__)

UID_KEY = "seaweedmq.topic_uid"
_NAME_MAPPING = "schema.name-mapping.default"
_NO_RETRY = {"commit.retry.num-retries": "0"}
"""Property that disables retries: pyiceberg would add files a second time after a concurrent export."""
_UNUSED_ID = 1_000_000
_BOUNDED = ("_segment", "_partition", "_offset", "_timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export."""

    table: str
    """Name of the table in Iceberg's catalog."""
    snapshot: int | None
    """Id of the newest snapshot; None if the topic has no tables."""
    added: int
    removed: int
    files: int
    """Number of files of the table after the export."""
    left_out: Mapping[str, str]
    """Columns that Iceberg cannot hold -> reason."""


def export_iceberg(
    place: Place, name: TopicName, catalog: str, *, skip_missing: bool = False, **properties: str
) -> Exported:
    """Register the topic's tables with a catalog as table ``namespace.topic``, or update that table.

    An update adds new files and drops replaced ones in one snapshot; without changes there is no new snapshot. No file
    is copied.

    Args:
        place: Place of the storage.
        name: Topic to export.
        catalog: Name of a catalog in ``.pyiceberg.yaml``, or a URI: ``sqlite:///file.db`` and other SQL URIs, or
            ``http://...`` and ``https://...`` for REST.
        skip_missing: Whether to export the remaining records of a topic with lost records, with a warning for each gap.
        properties: Properties of the catalog, as named by pyiceberg. ``warehouse`` is the location of the metadata; its
            default for SQL is ``iceberg`` below the storage root.

    Raises:
        Unsupported: If pyiceberg is not installed, or cannot read the files.
        InvalidArgument: If there is no such catalog, or it does not reply.
        AlreadyExists: If the catalog has a table of that name that is not the topic's.
        Unavailable: If another process changed the table meanwhile.
        DataLoss: If records are in no file, and neither retention nor a low watermark removed them.
        NotFound: If there is no such topic.
        Corrupt: If a document or the Delta log is unreadable.
        StorageFailed: If the storage cannot be read or written.
    """
    listed = read_snapshot(place, name)
    topic = listed.topic
    _check_missing(listed, skip_missing)
    opened = _open_catalog(place, catalog, properties)
    reconcile(place, topic)
    state = _log_state(place, topic)
    own = topic_columns(topic, declared_kinds(state.metadata))
    columns, left_out, unreadable = iceberg_columns(own)
    if unreadable:
        raise Unsupported(
            f"topic {name} cannot be exported to Iceberg, pyiceberg cannot read files with these columns: "
            f"{'; '.join(f'{column}, {why}' for column, why in unreadable.items())}; publish to a topic without them"
        )
    identifier = (name.namespace, name.name)
    from pyiceberg.exceptions import CommitFailedException, RESTError, TableAlreadyExistsError

    try:
        table = _table(opened, identifier, topic, columns, state)
        if table is None:
            return Exported(table=".".join(identifier), snapshot=None, added=0, removed=0, files=0, left_out=left_out)
        added, removed = _update_table(
            table, columns, [own.field(name) for name in left_out], _wanted(place, topic, state)
        )
    except (CommitFailedException, TableAlreadyExistsError) as e:
        raise Unavailable(f"another process changed {'.'.join(identifier)} meanwhile: export again ({e})") from e
    except (OSError, RESTError) as e:
        raise InvalidArgument(f"catalog {catalog} does not reply ({e}): check that it runs, and its settings") from e
    snapshot = table.current_snapshot()
    return Exported(
        table=".".join(identifier),
        snapshot=None if snapshot is None else snapshot.snapshot_id,
        added=added,
        removed=removed,
        files=len(state.active),
        left_out=left_out,
    )


def _check_missing(snapshot: TopicSnapshot, skip_missing: bool) -> None:
    """Raise DataLoss for the first gap that the file names show, or log every gap."""
    for segment in snapshot.segments:
        gaps: list[range] = []
        snapshot.plan(segment.id, missing=gaps if skip_missing else None)
        for gap in gaps:
            log.warning("%s; skipped", loss_text(snapshot.topic, segment.id, gap.start, gap.stop))


def _open_catalog(place: Place, catalog: str, properties: Mapping[str, str]) -> "Catalog":
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError
    except ImportError as e:
        raise Unsupported(f'to export to Iceberg, pip install "seaweedmq[iceberg]" ({e})') from e
    scheme = urlsplit(catalog).scheme if "://" in catalog or catalog.startswith("sqlite:") else ""
    given: dict[str, Any] = dict(properties)
    if scheme in ("http", "https"):
        name, given = "seaweedmq", {"type": "rest", "uri": catalog, **given}
    elif scheme:
        name, given = "seaweedmq", {"type": "sql", "uri": catalog, "warehouse": place.uri("iceberg"), **given}
    else:
        name = catalog
    try:
        return load_catalog(name, **given)
    except NotInstalledError as e:
        raise Unsupported(f"catalog {catalog} needs an extra of pyiceberg: {e}") from e
    except Exception as e:  # each kind of catalog has its own errors
        said = str(e).splitlines()[0] if str(e) else repr(e)
        raise InvalidArgument(
            f"catalog {catalog} cannot be opened ({said}): give the name of one in .pyiceberg.yaml, or a URI like "
            "sqlite:///iceberg.db"
        ) from e


def _log_state(place: Place, topic: Topic) -> LogState:
    try:
        with open_log(place, topic.name) as folder:
            return read_state(folder, folder.listing())
    except FileNotFoundError:
        return LogState()


def _table(
    catalog: "Catalog", identifier: tuple[str, str], topic: Topic, columns: pa.Schema, state: LogState
) -> "Table | None":
    """Return the topic's table in the catalog; create it if it is missing and the topic has tables."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = catalog.load_table(identifier)
    except NoSuchTableError:
        if not state.active:
            return None
        catalog.create_namespace_if_not_exists(identifier[0])
        return catalog.create_table(identifier, schema=columns, properties={UID_KEY: str(topic.uid), **_NO_RETRY})
    if table.properties.get(UID_KEY) != str(topic.uid):
        raise AlreadyExists(
            f"the catalog has a table {'.'.join(identifier)} that is of another topic, or not of SeaweedMQ: drop or "
            "rename it, or export to another catalog"
        )
    return table


def _wanted(place: Place, topic: Topic, state: LogState) -> dict[str, Add]:
    """Return the live tables by the URI that Iceberg stores."""
    return {place.uri(f"{table_dir(topic.name)}/{path}"): add for path, add in state.active.items()}


def _update_table(
    table: "Table", columns: pa.Schema, left_out: Sequence[pa.Field], wanted: Mapping[str, Add]
) -> tuple[int, int]:
    """Add missing files and drop superseded ones in one snapshot; return the number of each."""
    there = {task.file.file_path: task.file for task in table.scan().plan_files()}
    added = [uri for uri in wanted if uri not in there]
    dropped = [file for uri, file in there.items() if uri not in wanted]
    fields = {field.name for field in table.schema().fields}
    has_new_columns = any(name not in fields for name in columns.names)
    if not (added or dropped or has_new_columns):
        return 0, 0
    with table.transaction() as transaction:
        if has_new_columns:
            with transaction.update_schema() as update:
                update.union_by_name(columns)
        mapping = _name_mapping(transaction.table_metadata.schema(), left_out)
        if transaction.table_metadata.properties.get(_NAME_MAPPING) != mapping:
            transaction.set_properties({_NAME_MAPPING: mapping})
        if added or dropped:
            snapshots = transaction.update_snapshot()
            with snapshots.overwrite() if dropped else snapshots.merge_append() as change:
                for file in dropped:
                    change.delete_data_file(file)
                for file in _data_files(transaction.table_metadata, {uri: wanted[uri] for uri in added}):
                    change.append_data_file(file)
    return len(added), len(dropped)


def _name_mapping(schema: Any, left_out: Iterable[pa.Field]) -> str:
    """Return the name mapping: Iceberg's field ids of the columns, which the files lack.

    Columns that are left out, and their parts, also have ids, which no column of the table uses: pyiceberg rejects a
    file with unmapped columns.
    """
    from pyiceberg.table.name_mapping import MappedField, NameMapping

    numbers = itertools.count(_UNUSED_ID)

    def mapped(field: pa.Field) -> MappedField:
        parts = [mapped(part) for part in parts_of(field.type)]
        return MappedField.model_validate({"field-id": next(numbers), "names": [field.name], "fields": parts})

    others = [mapped(field) for field in left_out]
    return NameMapping([*schema.name_mapping.root, *others]).model_dump_json()


def _data_files(metadata: Any, adds: Mapping[str, Add]) -> "Iterable[DataFile]":
    """Yield data files as ``Table.add_files`` would, which rejects files with columns that the table lacks."""
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    known = {f.name: f for f in metadata.schema().fields if f.name in _BOUNDED}
    for uri, add in adds.items():
        stats = json.loads(add.stats)

        def bounds(of: str, stats: Any = stats) -> dict[int, bytes]:
            return {
                known[name].field_id: to_bytes(known[name].field_type, us_of_text(v) if isinstance(v, str) else v)
                for name, v in stats.get(of, {}).items()
                if name in known
            }

        nulls = {known[name].field_id: count for name, count in stats.get("nullCount", {}).items() if name in known}
        yield DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=uri,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=add.records,
            file_size_in_bytes=add.size_bytes,
            column_sizes={},
            value_counts=dict.fromkeys(nulls, add.records),
            null_value_counts=nulls,
            nan_value_counts={},
            lower_bounds=bounds("minValues"),
            upper_bounds=bounds("maxValues"),
            split_offsets=None,
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
        )
