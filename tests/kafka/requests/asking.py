"""Client that sends all requests of one API in one version to one broker, and keeps the answers."""

import asyncio
import struct
from typing import Any

from seaweedmq.kafka.wire.messages import API, UUID
from tests.kafka.differential.batches import batch
from tests.kafka.differential.messages import Names, said
from tests.kafka.differential.play import CLOSED, Answers, Play, playing
from tests.kafka.differential.scenes.groups import joining, syncing
from tests.kafka.differential.scenes.produce import produce
from tests.kafka.requests.cases import cases
from tests.kafka.requests.good import NEED_MEMBER, NEED_OFFSETS, NEED_TOPIC, PARTITIONS, RECORDS, Place

ANSWER_S = 8.0
"""Limit for one answer: some requests wait for an event that never comes."""
SILENT = "<no answer>"
UNREADABLE = "<unreadable>"
COMMON = "compared-"
"""Common beginning of all prefixes."""
_NAMES = ("name", "topic", "group_id", "resource_name")


def prefix_of(api: API, version: int) -> str:
    """Return the beginning of all names of an API's version."""
    return f"{COMMON}{api.name.lower().replace('_', '-')}-{version}-"


async def asked(port: int, node_id: int, api: API, version: int, t0_ms: int) -> Answers:
    """Return the broker's answers to all cases by their titles, without the prefix of all names."""
    prefix = prefix_of(api, version)
    place = Place(prefix, t0_ms, node_id)
    answers: Answers = {}
    async with playing(port, prefix.removesuffix("-"), _names_of(place)) as play:
        await furnish(play, place, api)
        for case in cases(api, version, place):
            if api is API.OFFSET_DELETE:  # each case takes the offset away
                await _commit(play, place)
            play.names = _names_of(place)
            answers[case.title] = _without(place, await _answer(play, api, version, case.fields))
    return answers


def _names_of(place: Place) -> Names:
    """Return the names of one answer: what a broker counts in another one makes no difference."""
    names = Names(place.t0_ms)
    names.node_id = place.node_id
    names.of("id", place.topic_id)
    if place.member_id:
        names.of("member", place.member_id)
    return names


async def _answer(play: Play, api: API, version: int, fields: dict[str, Any]) -> Any:
    try:
        async with asyncio.timeout(ANSWER_S):
            reply = await play.quietly(api, version, **fields)
    except TimeoutError:
        await play.hang_up()
        return SILENT
    except (ValueError, IndexError, struct.error) as error:
        await play.hang_up()
        return f"{UNREADABLE}: {error!r}"
    return CLOSED if reply is None else said(api, version, reply, play.names)


async def furnish(play: Play, place: Place, api: API) -> None:
    """Create the topic, the group and the offsets that the requests of an API name."""
    if api in NEED_TOPIC:
        assert await play.topic("topic", PARTITIONS) == place.topic
        records = batch(*(b"%d" % number for number in range(RECORDS)), time_ms=place.t0_ms)
        made = await play.quietly(API.PRODUCE, 9, **produce((place.topic, 0, records)))
        assert made.responses[0].partition_responses[0].error_code == 0, made
        listed = await play.quietly(API.METADATA, 12, topics=[{"topic_id": None, "name": place.topic}])
        place.topic_id = UUID(str(listed.topics[0].topic_id))  # a handler has it as text
    if api in NEED_OFFSETS:
        if api not in NEED_TOPIC:
            await play.topic("topic", PARTITIONS)
        await _commit(play, place)
    if api in NEED_MEMBER:
        patient = {"session_timeout_ms": 600_000}
        first = await play.quietly(API.JOIN_GROUP, 9, **joining(place.group, **patient))
        joined = await play.quietly(API.JOIN_GROUP, 9, **joining(place.group, first.member_id, **patient))
        place.member_id, place.generation = joined.member_id, joined.generation_id
        shares = {place.member_id: b"share"}
        await play.quietly(API.SYNC_GROUP, 5, **syncing(place.group, place.member_id, place.generation, shares))


async def _commit(play: Play, place: Place) -> None:
    """Commit an offset for the first partition."""
    part = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "m"}
    kept = await play.quietly(
        API.OFFSET_COMMIT,
        7,
        group_id=place.committed,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": place.topic, "partitions": [part]}],
    )
    assert kept.topics[0].partitions[0].error_code == 0, kept


def _without(place: Place, part: Any) -> Any:
    """Drop the prefixes of names, and the topics and groups of other APIs and versions and of the broker itself."""
    if isinstance(part, dict):
        return {key: _without(place, value) for key, value in part.items()}
    if isinstance(part, list):
        return [_without(place, one) for one in part if not _is_foreign(place.prefix, one)]
    return part.replace(place.own, "").replace(place.prefix, "") if isinstance(part, str) else part


def _is_foreign(prefix: str, one: Any) -> bool:
    if not isinstance(one, dict):
        return False
    name = next((one[key] for key in _NAMES if key in one), None)
    return name is not None and (name.startswith("__") or (name.startswith(COMMON) and not name.startswith(prefix)))
