"""Rows of files, as the command `publish` checks and sends them."""

from pathlib import Path

import pyarrow as pa

from seaweedmq.cli.records.reading import InputFormat, check, tables
from seaweedmq.cli.records.source import open_source


def published(path: Path, kind: InputFormat, schema: pa.Schema | None = None, separator: str | None = None) -> pa.Table:
    with open_source(str(path)) as source:
        types = check(kind, source, schema, None, separator)
        parts = list(tables(kind, source, schema, None, separator, types))
    return pa.concat_tables(parts) if parts else pa.table({})
