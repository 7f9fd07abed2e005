"""Random rows of any type that a topic may have, from a seed."""

import datetime
import math
import random
import string
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from seaweedmq.codec.payload.batch import full_schema
from tests.support.topic_files import TopicFiles

_t = pa.types
NULLS = 0.2
_DAYS = (-719_162, 2_932_896)
"""The days 0001-01-01 and 9999-12-31."""
_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def drawn(kind: pa.DataType, count: int, rng: random.Random) -> pa.Array:
    """Draw values of a type, some of them null, including the least and the greatest."""
    if _t.is_float16(kind):
        return pa.array(np.array([rng.choice([1.5, -2.0, 0.0]) for _ in range(count)], np.float16))
    return pa.array([_value(kind, rng) for _ in range(count)], kind)


def plain(value: Any) -> Any:
    """Return a value without the differences between types that hold the same value."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


@dataclass
class TypedFiles(TopicFiles):
    """Files in which record ``n`` has row ``n`` of ``content``."""

    content: pa.Table = field(default_factory=lambda: pa.table({}))

    def rows(self, segment: int, base: int, end: int) -> pa.RecordBatch:
        plain = TopicFiles(self.root / "aside", name=self.name).rows(segment, base, end)
        part = self.content.slice(base, end - base)
        arrays = [
            plain.column(f.name) if f.name in plain.schema.names else pa.concat_arrays(part.column(f.name).chunks)
            for f in full_schema(self.schema)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=full_schema(self.schema))


def _value(kind: pa.DataType, rng: random.Random, *, may_be_null: bool = True) -> Any:
    if may_be_null and rng.random() < NULLS:
        return None
    if _t.is_boolean(kind):
        return rng.random() < 0.5
    if _t.is_integer(kind):
        low, high = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
        if _t.is_unsigned_integer(kind):
            low, high = 0, 2**kind.bit_width - 1
        return rng.choice([low, high, rng.randint(low, high)])
    if _t.is_floating(kind):
        return rng.choice([0.0, -0.0, 1.5, -2.25, float("inf"), float("nan")])
    if _t.is_decimal(kind):
        digits = rng.choice([1, kind.precision])
        return Decimal(rng.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-kind.scale)
    if _t.is_date(kind):
        return rng.choice([*_DAYS, rng.randint(*_DAYS)])
    if _t.is_timestamp(kind):
        low, high = (_DAYS[0] * 86_400, _DAYS[1] * 86_400) if kind.unit != "ns" else (-(2**33), 2**33)
        per_s = _PER_S[kind.unit]
        return rng.choice([low, high, rng.randint(low, high - 1)]) * per_s + rng.randrange(per_s)
    if _t.is_time(kind):
        return rng.randrange(86_400 * _PER_S[kind.unit])
    if _t.is_duration(kind):
        return rng.randint(-(10**12), 10**12)
    if _t.is_fixed_size_binary(kind):
        return rng.randbytes(kind.byte_width)
    if _t.is_binary(kind) or _t.is_large_binary(kind):
        return rng.randbytes(rng.choice([0, 1, 40]))
    if _t.is_string(kind) or _t.is_large_string(kind):
        return "".join(rng.choices(string.printable + "äß€😀", k=rng.choice([0, 1, 20])))
    if _t.is_struct(kind):
        return {kind.field(i).name: _value(kind.field(i).type, rng) for i in range(kind.num_fields)}
    if _t.is_map(kind):
        keys = [_value(kind.key_type, rng, may_be_null=False) for _ in range(rng.randrange(3))]
        return [(key, _value(kind.item_type, rng)) for key in dict.fromkeys(keys)]
    if _t.is_fixed_size_list(kind):
        return [_value(kind.value_type, rng) for _ in range(kind.list_size)]
    return [_value(kind.value_type, rng) for _ in range(rng.randrange(4))]
