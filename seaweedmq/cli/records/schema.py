"""Reader of schemas that users give as files."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from seaweedmq.cli.records.reading import ARROW_FILE_MAGIC
from seaweedmq.errors import InvalidArgument

PARQUET_MAGIC = b"PAR1"


def read_schema(path: Path) -> pa.Schema:
    """Read the schema of a Parquet file, an Arrow IPC file or stream, or a JSON object of column names and types."""
    content = path.read_bytes()[: 1 << 20] if path.is_file() else b""
    try:
        if content.startswith(PARQUET_MAGIC):
            return pa.parquet.read_schema(path)
        if content.startswith(ARROW_FILE_MAGIC):
            return pa.ipc.open_file(path).schema
        if content.lstrip().startswith(b"{"):
            return _from_json(path, path.read_bytes())
        return pa.ipc.open_stream(path.read_bytes()).schema
    except pa.ArrowInvalid as error:
        raise InvalidArgument(
            f"{path} does not hold a schema: give a Parquet file, an Arrow file, or JSON like "
            f'{{"id": "int64", "at": "timestamp[us, UTC]"}} ({error})'
        ) from error


def _from_json(path: Path, content: bytes) -> pa.Schema:
    try:
        columns = json.loads(content)
    except ValueError as error:
        raise InvalidArgument(f"schema {path} is not JSON: {error}") from None
    return pa.schema([pa.field(name, _type(path, name, kind)) for name, kind in columns.items()])


def _type(path: Path, name: str, kind: object) -> pa.DataType:
    """Return Arrow's type of this name, including two types whose parameters Arrow's aliases leave out."""
    if isinstance(kind, str):
        if match := re.fullmatch(r"timestamp\[(s|ms|us|ns), *(?:tz=)?([^\]]+)\]", kind):
            return pa.timestamp(match[1], tz=match[2])
        if match := re.fullmatch(r"decimal128\((\d+), *(\d+)\)", kind):
            return pa.decimal128(int(match[1]), int(match[2]))
        try:
            return pa.type_for_alias(kind)
        except ValueError:
            pass
    raise InvalidArgument(
        f"schema {path}: column {name!r} has the type {kind!r}, which Arrow does not know: "
        "use one like int64, double, string, binary, bool, date32, timestamp[us, UTC] or decimal128(10, 2)"
    )
