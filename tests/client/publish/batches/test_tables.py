"""Publishing of Arrow tables: accepted and rejected schemas, and where the rows end up."""

import asyncio
import gc
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from seaweedmq.client.client import Client
from seaweedmq.client.publish.receipts import OffsetRange, TableReceipt
from seaweedmq.errors import InvalidArgument, Unavailable
from tests.client.fake_broker import FakeCluster

TOPIC = "shop/orders"
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), pa.field("price", pa.float64())]
)


def orders(rows: int) -> pa.Table:
    return pa.table(
        {"id": range(rows), "name": [f"customer {i % 50}" for i in range(rows)], "price": [i / 4 for i in range(rows)]},
        schema=SCHEMA,
    )


async def read_back(client: Client, topic: str = TOPIC) -> pa.Table:
    async with client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
        return pa.Table.from_batches([batch async for batch in subscriber.batches()])


async def test_an_empty_topic_takes_the_schema_of_its_first_table(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        receipt = await (await publisher.send_table(orders(1_000), key="name"))
        assert receipt == TableReceipt(1_000, (OffsetRange(0, 0, 1_000),))
    table = await read_back(client)
    assert table.select(SCHEMA.names).cast(SCHEMA) == orders(1_000)
    assert table["_key"].to_pylist() == [f"customer {i % 50}".encode() for i in range(1_000)]
    assert table["_offset"].to_pylist() == list(range(1_000))


DICTIONARY_OF_LISTS = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([[1], [2]]))


@pytest.mark.parametrize(
    ("column", "named", "message"),
    [
        (pa.array([1]), {"key": "typo"}, "key column 'typo' is not in the table"),
        (pa.array([True]), {"key": "a"}, "key column 'a' is bool: it must be a string, binary or integer column"),
        (pa.array(["text"]), {"timestamp": "a"}, "timestamp column 'a' is string"),
        (pa.array([1]), {"timestamp": "typo"}, "timestamp column 'typo' is not in the table"),
        (pa.array([None], pa.timestamp("us")), {"timestamp": "a"}, "has 1 nulls"),
        (DICTIONARY_OF_LISTS, {}, "column 'a' is dictionary.*: send its values without a dictionary"),
    ],
)
async def test_a_first_table_that_is_rejected_gives_the_topic_no_schema(
    client: Client, column: pa.Array, named: dict[str, str], message: str
) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        with pytest.raises(InvalidArgument, match=message):
            await publisher.send_table(pa.table({"a": column}), **named)
        assert (await client.admin.describe_topic(TOPIC)).topic.schema is None
        assert (await (await publisher.send(b"plain"))).offset == 0


async def test_typed_messages_have_rows_as_values(client: Client) -> None:
    await client.admin.create_topic(TOPIC, schema=SCHEMA)
    async with client.publisher(TOPIC) as publisher:
        await publisher.send_table(orders(2), key="id")
        with pytest.raises(InvalidArgument, match="has a schema: publish tables"):
            await publisher.send(b"bytes")
    async with client.subscriber(TOPIC, start="earliest", limit=2) as subscriber:
        messages = [message async for message in subscriber]
    assert [(m.key, m.value) for m in messages] == [
        (b"0", {"id": 0, "name": "customer 0", "price": 0.0}),
        (b"1", {"id": 1, "name": "customer 1", "price": 0.25}),
    ]


async def test_a_large_table_over_many_segments_keeps_the_order_of_each_key(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC, segments=5, schema=SCHEMA)
    table = orders(50_000)
    async with client.publisher(TOPIC, batch_bytes=50_000) as publisher:
        receipt = await (await publisher.send_table(table, key="name"))
    assert receipt.records == 50_000
    assert sum(r.end_offset - r.first_offset for r in receipt.ranges) == 50_000
    assert len({r.segment for r in receipt.ranges}) == len(receipt.ranges) == 5
    back = await read_back(client)
    assert sorted(back["id"].to_pylist()) == list(range(50_000))
    last: dict[bytes, int] = {}
    for segment, offset, key, number in sorted(
        zip(*(back[c].to_pylist() for c in ("_segment", "_offset", "_key", "id")), strict=True)
    ):
        assert last.get(key, -1) < number, (segment, offset)
        last[key] = number


async def test_tables_and_seals_mix(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC, schema=SCHEMA)
    cluster.holds_acks = True
    async with client.publisher(TOPIC, batch_bytes=20_000) as publisher:
        sent = await publisher.send_table(orders(20_000), key="name")
        await cluster.until_stored(TOPIC, 1)
        cluster.seal(TOPIC, 0, (30_000,))
        cluster.release_acks()
        receipt = await sent
    assert len({r.segment for r in receipt.ranges}) == 3
    back = await read_back(client)
    assert sorted(back["id"].to_pylist()) == list(range(20_000))


async def test_plain_tables(client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    at = datetime(2024, 1, 2, 3, tzinfo=UTC)
    table = pa.table(
        {
            "_value": ["a", "b", "c"],
            "_key": pa.array(["x", None, "z"]),
            "_timestamp": pa.array([at] * 3, pa.timestamp("ms", "UTC")),
        }
    )
    async with client.publisher(TOPIC) as publisher:
        await publisher.send_table(table.to_batches()[0])
        empty = await (await publisher.send_table(table.slice(0, 0)))
        assert empty == TableReceipt(0, ())
    async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        messages = [message async for message in subscriber]
    assert [(m.key, m.value, m.timestamp) for m in messages] == [(b"x", b"a", at), (None, b"b", at), (b"z", b"c", at)]


async def test_safe_casts_and_column_order_are_allowed(client: Client) -> None:
    await client.admin.create_topic(TOPIC, schema=SCHEMA)
    table = pa.table(
        {
            "price": pa.array([1.5], pa.float32()),
            "name": pa.array(["n"]).dictionary_encode(),
            "id": pa.array([3], pa.int32()),
        }
    )
    large = table.set_column(1, "name", pa.array(["l"], pa.large_string()))
    async with client.publisher(TOPIC) as publisher:
        await publisher.send_table(table, key="name")
        await publisher.send_table(large, key="id")
    back = await read_back(client)
    assert back.select(["_key", "id", "name", "price"]).to_pylist() == [
        {"_key": b"n", "id": 3, "name": "n", "price": 1.5},
        {"_key": b"3", "id": 3, "name": "l", "price": 1.5},
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["name"]), r"column 'name' \(string\) of the topic's schema is not in the table"),
        (lambda t: t.append_column("extra", [[1]]), "column 'extra' of the table is not in the topic's schema"),
        (lambda t: t.set_column(0, "id", [["one"]]), "column 'id' is string, the topic's schema has int64"),
        (lambda t: t.set_column(0, "id", pa.array([[1.5]])[0:1].flatten().cast(pa.float64())), "'id' is double"),
        (lambda t: t.set_column(0, "id", pa.array([None], pa.int64())), "column 'id' has 1 nulls"),
        (lambda t: t.append_column("name", [["x"]]), "column 'name' occurs twice"),
    ],
)
async def test_a_table_that_does_not_fit_names_the_column(client: Client, change: object, message: str) -> None:
    await client.admin.create_topic(TOPIC, schema=SCHEMA)
    async with client.publisher(TOPIC) as publisher:
        with pytest.raises(InvalidArgument, match=message):
            await publisher.send_table(change(orders(1)))  # type: ignore[operator]


@pytest.mark.parametrize("kind", [pa.timestamp("us", "Mars/Phobos"), pa.list_(pa.timestamp("ns", "../UTC"))])
async def test_times_of_a_zone_that_is_not_known_are_refused(client: Client, kind: pa.DataType) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC) as publisher:
        with pytest.raises(InvalidArgument, match=r"column 'at' has the time zone '(Mars/Phobos|\.\./UTC)'"):
            await publisher.send_table(pa.table({"at": pa.nulls(1, kind)}))
        known = {"UTC": 0, "+02:00": 1, "Europe/Berlin": 2}
        table = pa.table({f"n{n}": pa.array([0], pa.timestamp("us", zone)) for zone, n in known.items()})
        await (await publisher.send_table(table))


@pytest.mark.parametrize(
    ("kind", "good", "bad", "said"),
    [
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), [1, 2], [1, None], "null in column 'odd'"),
        (
            pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
            [("a", 1)],
            [("a", None)],
            "column 'odd'",
        ),
        (
            pa.struct([pa.field("x", pa.list_(pa.field("item", pa.int64(), nullable=False)))]),
            {"x": [1]},
            {"x": [None]},
            "null in column 'odd', field 'x'",
        ),
        (pa.timestamp("s"), datetime(2026, 1, 1), 2**62, "column 'odd' that milliseconds cannot hold"),  # noqa: DTZ001
    ],
)
async def test_what_brokers_refuse_inside_of_a_column_is_refused_before_any_row_is_sent(
    client: Client, kind: pa.DataType, good: object, bad: object, said: str
) -> None:
    schema = pa.schema([("odd", kind)])
    await client.admin.create_topic(TOPIC, schema=schema)
    async with client.publisher(TOPIC) as publisher:
        with pytest.raises(InvalidArgument, match=said):
            await publisher.send_table(pa.table({"odd": pa.array([good] * 1_000 + [bad], kind)}))
        await (await publisher.send_table(pa.table({"odd": pa.array([good, None], kind)})))
    assert (await read_back(client)).num_rows == 2


async def test_a_row_over_the_limit_fails_the_table_and_nothing_else(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.frame_bytes_max = 50_000
    async with client.publisher(TOPIC) as publisher:
        table = pa.table({"_value": [b"a", bytes(60_000), b"b"]})
        with pytest.raises(InvalidArgument, match="row 1: a record that takes a frame of 60"):
            await (await publisher.send_table(table))
        assert (await (await publisher.send(b"c"))).offset == 2
        with pytest.raises(InvalidArgument, match="row 1"):
            await publisher.flush()


async def test_tables_that_failed_and_were_asked_hold_no_data(cluster: FakeCluster, client: Client) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.refuse_value = b"poison"
    async with client.publisher(TOPIC) as publisher:
        before = pa.total_allocated_bytes()
        kept = []
        for _ in range(64):
            kept.append(await publisher.send_table(pa.table({"_value": [b"poison", bytes(1 << 20)]})))
            with pytest.raises(InvalidArgument, match="poison"):
                await kept[-1]
        gc.collect()
        assert pa.total_allocated_bytes() - before < 4 << 20
        with pytest.raises(InvalidArgument, match="poison"):
            await publisher.flush()


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_plain_records_that_wait_while_the_topic_gets_a_schema_are_refused(
    cluster: FakeCluster, client: Client, is_sealed: bool
) -> None:
    await client.admin.create_topic(TOPIC)
    async with client.publisher(TOPIC, batch_bytes=1_000) as plain, client.publisher(TOPIC) as typed:
        cluster.refuse = Unavailable("not now")
        waiting = [await plain.send(bytes(400)) for _ in range(20)]
        table = await plain.send_table(pa.table({"_value": [b"a", b"b"]}))
        await asyncio.sleep(0.02)
        rows = await typed.send_table(orders(3))
        if is_sealed:
            cluster.seal(TOPIC, 0, cuts=(20_000,))
        cluster.refuse = None
        assert (await asyncio.wait_for(rows, 5)).records == 3
        for sent in (*waiting, table):
            with pytest.raises(InvalidArgument, match="has a schema"):
                await asyncio.wait_for(sent, 5)
    assert (await read_back(client)).num_rows == 3


async def test_a_row_that_fits_no_frame_is_named_by_its_number_in_the_table(
    cluster: FakeCluster, client: Client
) -> None:
    await client.admin.create_topic(TOPIC)
    cluster.frame_bytes_max = 100_000
    values = [bytes(10)] * 50 + [bytes(200_000)] + [bytes(10)] * 50
    table = pa.concat_tables([pa.table({"_value": values[:20]}), pa.table({"_value": values[20:]})])
    async with client.publisher(TOPIC, batch_bytes=1_000) as publisher:
        await (await publisher.send(b"the broker says its limit"))
        with pytest.raises(InvalidArgument, match=r"row 50: .* over the limit of 100000 bytes"):
            await (await publisher.send_table(table))
        with pytest.raises(InvalidArgument):
            await publisher.flush()
