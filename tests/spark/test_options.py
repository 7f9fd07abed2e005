"""The options of the format, checked without Spark running."""

from datetime import UTC, datetime

import pytest

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.options import OPTIONS, SparkApi, TopicLocation, check_names, parse_location, parse_options
from seaweedmq.spark.streams.stream_options import parse_stream_options
from seaweedmq.storage.plan.window import EARLIEST, Offsets, ReadWindow
from tests.support.topic_files import NOON_US

REQUIRED = {"storage": "/data", "topic": "shop/orders"}
NOON_MS = 1_600_000_000_000


def starting(text: str) -> Offsets:
    return parse_options({**REQUIRED, "startingOffsets": text}).window.starting


def ending(text: str) -> Offsets:
    return parse_options({**REQUIRED, "endingOffsets": text}).window.ending


def test_defaults_ask_for_everything() -> None:
    options = parse_options(REQUIRED)
    assert options.topic == TopicName("shop", "orders")
    assert (options.window, options.shown.columns) == (ReadWindow(), None)


def test_a_timestamp_is_iso_or_microseconds() -> None:
    def start(text: str) -> int | None:
        return parse_options({**REQUIRED, "STARTINGTIMESTAMP": text}).window.timestamps.lo

    assert start("2020-09-13T12:26:40Z") == start("2020-09-13T14:26:40+02:00") == NOON_US
    assert start(str(NOON_US)) == start("2020-09-13 12:26:40") == NOON_US
    assert start("20200913") == int(datetime(2020, 9, 13, tzinfo=UTC).timestamp() * 1_000_000)


@pytest.mark.parametrize("text", ["", "{", "[1]", "1.5", "-1", '{"a": 1}', '{"0": -1}', '{"0": true}', "9" * 30])
def test_offsets_that_are_none(text: str) -> None:
    with pytest.raises(InvalidArgument, match="startingOffsets"):
        parse_options({**REQUIRED, "startingOffsets": text})


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("startOffset", "startingOffsets"),
        ("bootstrapServers", "bootstrap"),
        ("kafka.bootstrap.servers", "bootstrap"),
        ("subscribe", "topic"),
        ("endingoffset", "endingOffsets"),
        ("maxRecordPerPartition", "maxRecordsPerPartition"),
        ("column", "columns"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_right_one(misspelt: str, meant: str) -> None:
    with pytest.raises(InvalidArgument, match=f"option '{misspelt}' is unknown: did you mean '{meant}'"):
        check_names({**REQUIRED, misspelt: "1"})


def test_an_option_like_no_other_or_of_another_face_is_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidArgument, match=r"option 'xyzzy' is unknown: options are storage, bootstrap, topic"):
        check_names({"xyzzy": "1"})
    for name, api, said in (
        ("endingOffsets", SparkApi.WRITE, r"df\.write, only of spark\.read: leave"),
        ("maxRecordsPerTrigger", SparkApi.BATCH, r"spark\.read,"),
    ):
        with pytest.raises(InvalidArgument, match=f"'{name}' is not an option of {said}"):
            check_names({**REQUIRED, name: "5"}, api)


def test_names_have_no_case_and_the_catalogs_repetitions_are_ignored() -> None:
    given = {"STORAGE": "/data", "topic": "shop/orders", "option.storage": "/data", "option.topic": "shop/orders"}
    assert check_names({**given, "provider": "seaweedmq", "owner": "me"}) == REQUIRED
    of_catalog = {"provider": "seaweedmq", **{f"option.{name}": value for name, value in REQUIRED.items()}}
    assert check_names(of_catalog) == REQUIRED
    assert check_names({"provider": "seaweedmq", "owner": "me"}) == {}  # options of a table without any
    with pytest.raises(InvalidArgument, match="option 'owner' is unknown"):
        check_names({**REQUIRED, "owner": "me"})


def test_every_option_has_a_face() -> None:
    for name, faces in OPTIONS.items():
        assert faces
        assert check_names({name.upper(): "x"}) == {name: "x"}


def test_brokers_may_stand_in_for_the_storage() -> None:
    brokers = parse_location({"topic": "shop/orders", "bootstrap": "127.0.0.1:17777"})
    assert brokers == TopicLocation(topic=TopicName("shop", "orders"), storage=None, bootstrap="127.0.0.1:17777")
    with pytest.raises(InvalidArgument, match=r"option 'storage' is missing: give it like .*, or 'bootstrap'"):
        parse_location({"topic": "shop/orders"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Offsets(default=EARLIEST)),
        ("7", Offsets(default=7)),
        ('{"3": 1000}', Offsets(default=EARLIEST, by_segment={3: 1000})),
        ('{"shop/orders": {"0": 5, "1": -2}}', Offsets(default=EARLIEST, by_segment={0: 5, 1: EARLIEST})),
        ('{"orders": {"0": "5"}}', Offsets(default=EARLIEST, by_segment={0: 5})),
    ],
)
def test_starting_offsets_as_users_of_kafka_write_them(text: str, expected: Offsets) -> None:
    assert starting(text) == expected


def test_ending_offsets_may_be_latest_however_it_is_written() -> None:
    assert ending("latest") == Offsets(default=None)
    assert ending('{"0": -1, "1": "latest", "2": 9}') == Offsets(default=None, by_segment={0: None, 1: None, 2: 9})


@pytest.mark.parametrize(
    ("start", "end", "where"),
    [
        ('{"0": 10}', '{"0": 5}', " for segment 0"),
        ('{"0": 10}', "5", " for segment 0"),
        ("10", '{"0": 5}', " for segment 0"),
        ("10", "5", ""),
    ],
)
def test_an_end_before_its_start_is_refused_and_one_at_it_is_not(start: str, end: str, where: str) -> None:
    with pytest.raises(InvalidArgument, match=f"are 10 and 5{where}, and the exclusive end"):
        parse_options({**REQUIRED, "startingOffsets": start, "endingOffsets": end})
    parse_options({**REQUIRED, "startingOffsets": start, "endingOffsets": end.replace("5", "10")})


def test_times_are_milliseconds_as_kafkas_and_stand_in_for_offsets() -> None:
    options = parse_options({**REQUIRED, "startingOffsetsByTimestamp": f'{{"0": {NOON_MS}}}'})
    assert options.window.starting_times == Offsets(default=EARLIEST, by_segment={0: NOON_MS * 1_000})
    window = parse_options({**REQUIRED, "endingOffsetsByTimestamp": str(NOON_MS)}).window
    assert window.ending_times == Offsets(default=NOON_MS * 1_000)
    with pytest.raises(InvalidArgument, match="exclude each other"):
        parse_options({**REQUIRED, "startingOffsetsByTimestamp": str(NOON_MS), "startingOffsets": "5"})


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("minPartitions", "0", "give a whole number from 1"),
        ("maxRecordsPerPartition", "many", "give a whole number from 1"),
        ("failOnDataLoss", "yes", "give true or false"),
        ("includeHeaders", "", "give true or false"),
        ("startingOffsetsByTimestamp", "noon", "give milliseconds since 1970, or JSON"),
    ],
)
def test_values_that_break_their_rule_are_named_with_it(option: str, value: str, rule: str) -> None:
    with pytest.raises(InvalidArgument, match=f"option '{option}' is '{value}': {rule}"):
        parse_options({**REQUIRED, option: value})


NO_BEGIN, NO_END = "cannot begin at latest, no record follows it", "cannot end at earliest, no record precedes it"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        *(("startingOffsets", text, NO_BEGIN) for text in ("latest", '{"0": -1}', '{"shop/orders": {"4": "latest"}}')),
        *(("endingOffsets", text, NO_END) for text in ("earliest", '{"0": -2}')),
        ("startingOffsets", '{"shop/other": {"0": 5}}', "'shop/other' is not the topic to read, shop/orders"),
        ("columns", '["a,b", "a,b"]', "'columns' names a,b twice"),
        ("columns", "key,offset,key", "names key twice"),
    ],
)
def test_values_that_make_no_sense_are_refused(option: str, value: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        parse_options({**REQUIRED, option: value})


def test_headers_are_not_both_named_and_left_out() -> None:
    assert not parse_options({**REQUIRED, "includeHeaders": "False"}).shown.include_headers
    with pytest.raises(InvalidArgument, match="names headers and 'includeHeaders' is false"):
        parse_options({**REQUIRED, "includeHeaders": "false", "columns": "offset,headers"})


@pytest.mark.parametrize(
    ("number", "as_us", "unit"),
    [
        ("1600000000000", "1970-01-19T12:26:40.000000Z", "milliseconds"),
        ("1600000000", "1970-01-01T00:26:40.000000Z", "seconds"),
    ],
)
@pytest.mark.parametrize("option", ["startingTimestamp", "endingTimestamp"])
def test_milliseconds_and_seconds_are_no_microseconds(option: str, number: str, as_us: str, unit: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_options({**REQUIRED, option: number})
    assert str(refused.value) == (
        f"option '{option}' is {number}: numbers are microseconds since 1970, so this is {as_us}, and as {unit} "
        "it would be 2020-09-13T12:26:40.000000Z; give microseconds, or the time in ISO 8601"
    )
    for meant in (number.ljust(16, "0"), as_us):
        assert parse_options({**REQUIRED, option: meant}).window.timestamps.is_bounded


TWO_STARTS = f'{{"0": {NOON_MS}, "1": {NOON_MS + 1}}}'


@pytest.mark.parametrize(
    ("what", "start", "end", "said"),
    [
        ("Timestamp", "2026-01-02", "2026-01-01T12:00:00Z", "2026-01-02 and 2026-01-01T12:00:00Z"),
        ("Timestamp", str(2**63 - 1), "2026-01-01", f"{2**63 - 1} and 2026-01-01"),
        ("OffsetsByTimestamp", str(NOON_MS + 1), str(NOON_MS), f"{NOON_MS + 1} and {NOON_MS}"),
        ("OffsetsByTimestamp", TWO_STARTS, str(NOON_MS), f"{NOON_MS + 1} and {NOON_MS} for segment 1"),
    ],
)
def test_times_that_end_before_they_begin_are_refused(what: str, start: str, end: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_options({**REQUIRED, f"starting{what}": start, f"ending{what}": end})
    assert str(refused.value) == (
        f"options 'starting{what}' and 'ending{what}' are {said}, and the exclusive end lies before "
        "the start: give a higher end"
    )
    parse_options({**REQUIRED, f"starting{what}": end, f"ending{what}": end})  # an empty read is harmless


@pytest.mark.parametrize(
    ("text", "names"),
    [("a, b", ("a", "b")), ('["a,b", " a ", "["]', ("a,b", " a ", "[")), ("[a], b", ("[a]", "b")), ("[1]", ("[1]",))],
)
def test_columns_are_named_with_commas_between_or_as_a_list(text: str, names: tuple[str, ...]) -> None:
    assert parse_options({**REQUIRED, "columns": text}).shown.columns == names


def test_a_stream_refuses_a_time_in_milliseconds_too() -> None:
    with pytest.raises(InvalidArgument, match=f"'startingTimestamp' is {NOON_MS}: numbers are microseconds since 1970"):
        parse_stream_options({**REQUIRED, "startingTimestamp": str(NOON_MS)})
