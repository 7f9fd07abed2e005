"""Records of the load: orders in Avro, keyed by customer, each with its sequence in its producer.

They are binary without a schema, as ``fastavro.schemaless_writer`` writes them: readers must know the schema.
"""

import io
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Order",
        "namespace": "com.example.shop",
        "fields": [
            {"name": "producer", "type": "int"},
            {"name": "sequence", "type": "long"},
            {"name": "due_ns", "type": "long"},
            {"name": "order_id", "type": "string"},
            {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT"]}},
            {
                "name": "customer",
                "type": {
                    "type": "record",
                    "name": "Customer",
                    "fields": [
                        {"name": "id", "type": "long"},
                        {"name": "name", "type": "string"},
                        {"name": "email", "type": ["null", "string"], "default": None},
                        {
                            "name": "address",
                            "type": {
                                "type": "record",
                                "name": "Address",
                                "fields": [
                                    {"name": "street", "type": "string"},
                                    {"name": "city", "type": "string"},
                                    {"name": "country", "type": "string"},
                                ],
                            },
                        },
                    ],
                },
            },
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [
                            {"name": "sku", "type": "string"},
                            {"name": "quantity", "type": "int"},
                            {"name": "cents", "type": "long"},
                            {"name": "attributes", "type": {"type": "map", "values": "string"}},
                        ],
                    },
                },
            },
            {"name": "total_cents", "type": "long"},
        ],
    }
)
KEYS = 10_000
"""Number of customers, which all producers share."""
POOL = 1_000
"""Number of distinct orders of a producer, apart from their first fields."""
EPOCH_MS = 1_767_225_600_000


class Damaged(Exception):
    """A record differs from its producer's; the message names the difference."""


@dataclass(frozen=True, slots=True)
class Head:
    """Fields of a record that the checker needs."""

    producer: int
    sequence: int
    due_ns: int
    key: int


class Orders:
    """Orders of one producer: the same for the same number."""

    def __init__(self, producer: int) -> None:
        rng = random.Random(producer)
        self._producer = producer
        self._orders = [_order(rng) for _ in range(POOL)]

    def record(self, sequence: int, due_ns: int) -> tuple[bytes, bytes]:
        """Return key and value of the record with this sequence. The order of the customers is random."""
        order = self._orders[sequence % POOL]
        customer = (sequence * 7_919 + self._producer * 104_729 + sequence // POOL) % KEYS
        order["producer"], order["sequence"], order["due_ns"] = self._producer, sequence, due_ns
        order["customer"]["id"] = customer
        out = io.BytesIO()
        fastavro.schemaless_writer(out, SCHEMA, order)
        return _key(customer), out.getvalue()


def head_of(key: bytes | None, value: bytes | None) -> Head:
    """Decode a record and check that it is whole.

    Raises:
        Damaged: If it is not.
    """
    try:
        order: Any = fastavro.schemaless_reader(io.BytesIO(value or b""), SCHEMA, None)
    except (EOFError, ValueError, IndexError, StopIteration, OverflowError) as error:
        raise Damaged(f"a value is not an order: {type(error).__name__}: {error}") from None
    if sum(line["quantity"] * line["cents"] for line in order["lines"]) != order["total_cents"]:
        raise Damaged(f"an order whose lines are not its total: {order['order_id']}")
    customer: int = order["customer"]["id"]
    if key != _key(customer):
        raise Damaged(f"the key {key!r} on an order of customer {customer}")
    return Head(order["producer"], order["sequence"], order["due_ns"], customer)


def _key(customer: int) -> bytes:
    return b"customer-%08d" % customer


def _order(rng: random.Random) -> dict[str, Any]:
    lines = [_line(rng) for _ in range(rng.randint(1, 5))]
    return {
        "order_id": f"{rng.getrandbits(64):016x}",
        "placed_at": EPOCH_MS + rng.randrange(86_400_000),
        "status": rng.choice(("NEW", "PAID", "SENT")),
        "customer": {
            "name": rng.choice(("Zoë Müller", "李小龍", "Ada Lovelace", "Олена Коваль")),
            "email": rng.choice((None, "someone@example.com")),
            "address": {"street": f"Rue {rng.randint(1, 999)}", "city": "Genève", "country": "CH"},
        },
        "lines": lines,
        "total_cents": sum(line["quantity"] * line["cents"] for line in lines),
    }


def _line(rng: random.Random) -> dict[str, Any]:
    attributes: Mapping[str, str] = {"colour": rng.choice(("red", "blue")), "size": str(rng.randint(30, 50))}
    return {
        "sku": f"SKU-{rng.randrange(10**6):06d}",
        "quantity": rng.randint(1, 9),
        "cents": rng.randint(1, 99_999),
        "attributes": attributes,
    }
