"""Keys of objects encode the contents of objects, and sort by number and offset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec import object_keys
from seaweedmq.codec.object_keys import (
    BlobObject,
    LogObject,
    TableObject,
    TopicKey,
    batch_folder,
    bundle_key,
    delta_log_folder,
    parse_blob_object,
    parse_bundle_key,
    parse_log_object,
    parse_table_object,
)
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName

ORDERS = TopicKey(TopicName("shop", "orders.v2"), 77)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True)
TOPICS = st.builds(TopicKey, st.builds(TopicName, NAMES, NAMES), st.integers(0, 2**63 - 1))
SEGMENTS = st.integers(0, 10**10 - 1)
NUMBERS = st.integers(0, 10**16 - 1)
RANGES = st.tuples(st.integers(0, 2**63), st.integers(1, 10**6)).map(lambda r: (r[0], r[0] + r[1]))
PARSERS = [parse_bundle_key, parse_log_object, parse_table_object, parse_blob_object]
LOG = "topics/shop/orders.v2/77/log/00000007/00000000000000000100-00000000000000000250-b-7f3a.log"
TABLE = "topics/shop/orders.v2/77/table/00000007-00000000000000000100-00000000000000000250-001600000000000.parquet"


def test_where_things_lie():
    assert bundle_key("b-7f3a", 12) == "bundles/b-7f3a/0000000000000012"
    assert LogObject(ORDERS, 7, 100, 250, "b-7f3a").key == LOG
    assert TableObject(ORDERS, 7, 100, 250, 1_600_000_000_000).key == TABLE
    assert delta_log_folder(ORDERS) == "topics/shop/orders.v2/77/table/_delta_log"
    assert batch_folder(ORDERS, "s1", 3) == "topics/shop/orders.v2/77/.staged/s1/00000000000000000003"
    assert BlobObject(ORDERS, "2026-11-28", "x9").key == "blobs/shop/orders.v2/77/2026-11-28/x9"
    assert BlobObject(ORDERS, "2026-11-28", "x9", 4).key == "blobs/shop/orders.v2/77/2026-11-28/x9/00004"


@given(NAMES, NUMBERS)
def test_a_bundle_is_found_by_its_key(broker: str, number: int):
    assert parse_bundle_key(bundle_key(broker, number)) == (broker, number)


@given(NUMBERS, NUMBERS)
def test_bundles_sort_as_numbers_do(one: int, other: int):
    assert (bundle_key("b", one) < bundle_key("b", other)) == (one < other)


@given(TOPICS, SEGMENTS, RANGES, NAMES, st.integers(0, 10**15 - 1))
def test_the_keys_of_logs_and_tables_encode_all_their_parts(topic, segment, offsets, writer, dated):
    log = LogObject(topic, segment, *offsets, writer)
    table = TableObject(topic, segment, *offsets, dated)
    assert parse_log_object(log.key) == log
    assert parse_table_object(table.key) == table


@given(TOPICS, NAMES, st.none() | st.integers(0, 99_999))
def test_the_key_of_a_blob_encodes_all_its_parts(topic, name, part):
    blob = BlobObject(topic, "2026-02-03", name, part)
    assert parse_blob_object(blob.key) == blob


@given(
    st.one_of(
        st.text(max_size=60),
        st.sampled_from([LOG, TABLE, bundle_key("b", 1)]).flatmap(
            lambda key: st.integers(0, len(key) - 1).flatmap(
                lambda at: st.characters().map(lambda letter: key[:at] + letter + key[at + 1 :])
            )
        ),
    )
)
def test_any_text_is_parsed_to_itself_or_foreign_and_never_an_error(text: str):
    for parse in PARSERS:
        found = parse(text)
        if found is not None:
            assert (bundle_key(*found) if parse is parse_bundle_key else found.key) == text


@pytest.mark.parametrize(
    "key",
    [
        "",
        "bundles/b-1/12",
        "bundles/b-1/00000000000000012",
        "bundles/../0000000000000012",
        "bundles/b-1/0000000000000012/x",
        "bundles/b-1/\u0660000000000000012",
        "x" + LOG,
        LOG + "\n",
        LOG.replace("00000007", "7"),
        LOG.replace("/77/", "/077/"),
        LOG.replace("/77/", "/"),
        LOG.replace("00000000000000000250", "00000000000000000100"),
        LOG.replace("b-7f3a", ""),
        TABLE.replace("-001600000000000", ""),
        TABLE.replace("00000000000000000250", "00000000000000000099"),
        TABLE.replace("/table/", "/table/."),
        "blobs/shop/orders/1/2026-1-2/x",
        "blobs/shop/orders/1/2026-01-02/x/1",
        "blobs/shop/orders/1/2026-01-02/../00001",
    ],
)
def test_foreign_keys_are_not_parsed(key: str):
    assert [parse(key) for parse in PARSERS] == [None] * len(PARSERS)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: bundle_key("../b", 1), "broker '../b' is not allowed"),
        (lambda: bundle_key("b", 10**16), "use numbers from 0"),
        (lambda: LogObject(ORDERS, 1, 5, 5, "b").key, "at least one record"),
        (lambda: LogObject(ORDERS, 1, 5, 6, "a/b").key, "writer 'a/b' is not allowed"),
        (lambda: TableObject(ORDERS, 1, 5, 6, 10**15).key, "ms since 1970"),
        (lambda: TableObject(ORDERS, 1, 6, 5, 0).key, "at least one record"),
        (lambda: BlobObject(ORDERS, "today", "x").key, "YYYY-MM-DD"),
        (lambda: BlobObject(ORDERS, "2026-01-02", "x", 10**5).key, "use 0 to 99999"),
        (lambda: batch_folder(ORDERS, "s", -1), "numbered from 0"),
    ],
)
def test_illegal_parts_are_rejected(build, message: str):
    with pytest.raises(InvalidArgument, match=message):
        build()


def test_the_longest_names_stay_below_the_limit_of_a_key():
    topic = TopicKey(TopicName("n" * 100, "t" * 249), 2**64 - 1)
    keys = [
        LogObject(topic, 10**10 - 1, 2**64 - 2, 2**64 - 1, "w" * 100).key,
        TableObject(topic, 10**10 - 1, 2**64 - 2, 2**64 - 1, object_keys.DATED_MS_MAX).key,
        BlobObject(topic, "2026-01-02", "i" * 100, 99_999).key,
    ]
    assert max(map(len, keys)) <= 800, "S3's limit is 1,024 bytes with the prefix"
