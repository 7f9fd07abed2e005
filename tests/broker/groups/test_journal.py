"""The group journal: the storage has a committed offset before the commit is acknowledged."""

import asyncio

import pytest

from seaweedmq.broker.groups import journal as journals
from seaweedmq.codec.paths import GROUPS, parse_journal_name
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.group_journal import replayed
from seaweedmq.codec.state.group_metadata import committed_from_json
from seaweedmq.model.messages.calls import DeleteGroup, ResetGroup
from seaweedmq.model.messages.subscribe import EARLIEST
from tests.broker.joining import GROUP, Joining
from tests.broker.testbed import NAME, Host, Testbed
from tests.doubles.memory_store import StorageOp


def found(testbed: Testbed) -> list[str]:
    return sorted(path.removeprefix(f"{GROUPS}/") for path in testbed.store.files if path.startswith(f"{GROUPS}/"))


def in_storage(testbed: Testbed) -> dict[str, bytes]:
    """Return the groups as a recovery would find them."""
    for name in reversed(found(testbed)):
        values = replayed(bytes(testbed.store.files[f"{GROUPS}/{name}"].data))
        if values is not None:
            return values
    raise AssertionError("no journal has a whole snapshot")


def in_etcd(testbed: Testbed) -> dict[str, bytes]:
    return {entry.key: entry.value for entry in testbed.etcd.server.list(keys.GROUPS_ROOT).entries}


async def member(testbed: Testbed, host: Host) -> Joining:
    """Return a member that has read some records of the only segment."""
    await testbed.topic(host)
    await (await (await testbed.primary(host)).publisher()).store(5)
    one = await Joining(testbed, "one").joined(host)
    await one.until_owns(0)
    return one


async def test_whatever_etcd_has_of_groups_is_in_the_journal_once_it_is_acknowledged(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    one = await member(testbed, hosts[0])
    for offset in range(1, 6):
        assert await one.commit({0: offset}) == {}
        assert in_storage(testbed) == in_etcd(testbed)
    await one.leave()
    assert in_storage(testbed) == in_etcd(testbed)
    await hosts[0].api.call(ResetGroup(GROUP, NAME, EARLIEST))
    assert in_storage(testbed) == in_etcd(testbed)
    await hosts[0].api.call(DeleteGroup(GROUP))
    assert in_storage(testbed) == in_etcd(testbed) == {}


async def test_while_the_storage_fails_commits_wait_and_few_files_are_begun_in_vain(testbed: Testbed) -> None:
    hosts = await testbed.cluster(1)
    one = await member(testbed, hosts[0])
    assert await one.commit({0: 1}) == {}
    testbed.faults.paths = GROUPS
    testbed.faults.failing = dict.fromkeys((StorageOp.APPEND, StorageOp.CREATE, StorageOp.SYNC), "it is full")
    committing = asyncio.create_task(one.commit({0: 2}))
    await asyncio.sleep(5)
    assert not committing.done()
    before = found(testbed)
    testbed.faults.failing.clear()
    assert await committing == {}
    assert in_storage(testbed) == in_etcd(testbed)
    await testbed.until(lambda: len(found(testbed)) == 1)
    assert found(testbed)[0] > before[-1]
    await asyncio.sleep(1.5)
    (name,) = found(testbed)
    file = testbed.store.files[f"{GROUPS}/{name}"]
    assert file.synced_bytes == len(file.data), "lines are flushed within a second or so"

    testbed.faults.failing = dict.fromkeys((StorageOp.APPEND, StorageOp.DELETE), "it fails")
    with pytest.raises(TimeoutError):
        await one.commit({0: 3})
    await asyncio.sleep(120)
    assert 1 < len(found(testbed)) <= 1 + journals.FILES_MAX
    testbed.faults.failing.clear()
    await testbed.until(lambda: len(found(testbed)) == 1)
    assert in_storage(testbed) == in_etcd(testbed)


async def test_commits_do_not_wait_for_a_storage_that_deletes_nothing(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    one = await member(testbed, hosts[0])
    assert await one.commit({0: 1}) == {}
    (before,) = found(testbed)
    testbed.faults.paths = GROUPS
    testbed.faults.failing = {StorageOp.DELETE: "nothing is deleted"}
    testbed.leader().kill()
    await testbed.until(lambda: any(h.lives and h.inspect.leads for h in hosts))
    host = next(h for h in hosts if h.lives)
    again = await Joining(testbed, "two").joined(host)
    await again.until_owns(0)
    assert await again.commit({0: 2}) == {}
    await asyncio.sleep(60)
    assert [name == before for name in found(testbed)] == [True, False], "no file is begun in vain"
    assert in_storage(testbed) == in_etcd(testbed)
    testbed.faults.failing.clear()
    await testbed.until(lambda: before not in found(testbed))


async def test_a_new_leader_begins_with_what_the_last_one_left(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    one = await member(testbed, hosts[0])
    assert await one.commit({0: 3}) == {}
    (before,) = found(testbed)
    late = testbed.store.files[f"{GROUPS}/{before}"]
    was = bytes(late.data)
    leader = testbed.leader()
    leader.kill()
    await testbed.until(lambda: any(h.lives and h.inspect.leads for h in hosts))
    await testbed.until(lambda: found(testbed) and before not in found(testbed))
    after = found(testbed)[-1]
    parsed = parse_journal_name(before), parse_journal_name(after)
    assert parsed[0] is not None
    assert parsed[1] is not None
    assert parsed[0][1] < parsed[1][1]
    assert in_storage(testbed) == in_etcd(testbed)
    # The deposed leader appends once more, to a file that a slow deletion has left.
    testbed.store.files[f"{GROUPS}/{before}"] = late
    late.data += was
    values = in_storage(testbed)
    assert committed_from_json(values[keys.offset_key(NAME, GROUP, 0)]).offset == 3
    assert values == in_etcd(testbed)


async def test_a_long_journal_is_replaced_by_a_snapshot(testbed: Testbed) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journals, "ROLL_BYTES_MIN", 2_000)
        hosts = await testbed.cluster(1)
        one = await member(testbed, hosts[0])
        (first,) = found(testbed)
        for n in range(60):
            assert await one.commit({0: n % 5 + 1}) == {}
            assert in_storage(testbed) == in_etcd(testbed)
        await testbed.until(lambda: first not in found(testbed))
        size_bytes = sum(len(f.data) for path, f in testbed.store.files.items() if path.startswith(GROUPS))
        assert size_bytes < 10_000
