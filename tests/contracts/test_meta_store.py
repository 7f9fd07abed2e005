"""The contract of a metadata store, which real etcd and the one in memory both fulfill."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest

from seaweedmq.codec.state import keys
from seaweedmq.coordination.etcd import LIST_PAGE_KEYS
from seaweedmq.coordination.etcd_watch import PROBE_AFTER_S
from seaweedmq.coordination.limits import TRANSACTION_BYTES_MAX, TRANSACTION_OPS_MAX
from seaweedmq.coordination.waiting import end_watch
from seaweedmq.errors import InvalidArgument, LeaseEnded, OutOfRange, Unavailable
from seaweedmq.ports import Changes, Compare, Delete, MetaStore, Put
from tests.support.meta import CALL_TIMEOUT_S, Backend

TTL_S = 1.0
GIVE_UP_S = 6.0
"""Time within which a broken connection is noticed, even on a busy machine."""


def absent(key: str) -> Compare:
    return Compare(key, create_revision=0)


async def put(store: MetaStore, key: str, value: bytes = b"", lease: int = 0) -> int:
    revision = await store.transact([], [Put(key, value, lease)])
    assert revision is not None
    return revision


async def take(watch: AsyncIterator[Changes], count: int) -> list[Changes]:
    """Return the next ``count`` changes of a watch, which stays open."""
    async with asyncio.timeout(GIVE_UP_S):
        return [await anext(watch) for _ in range(count)]


# --- keys and transactions ---
async def test_of_many_who_create_a_key_one_succeeds(backend: Backend) -> None:
    stores = [backend.client() for _ in range(5)]
    created = await asyncio.gather(
        *(store.transact([absent("/k")], [Put("/k", str(n).encode())]) for n, store in enumerate(stores))
    )
    winner = next(n for n, revision in enumerate(created) if revision is not None)
    assert [revision for revision in created if revision is not None] == [created[winner]]
    entry = await stores[0].get("/k")
    assert (entry.value, entry.create_revision) == (str(winner).encode(), created[winner])


async def test_a_transaction_is_done_whole_or_not_at_all(backend: Backend) -> None:
    store = backend.client()
    first = await put(store, "/a", b"1")
    second = await put(store, "/a", b"2")
    stale = await store.transact([absent("/b"), Compare("/a", mod_revision=first)], [Put("/b", b"x"), Delete("/a")])
    assert stale is None
    assert await store.get("/b") is None
    done = await store.transact([absent("/b"), Compare("/a", mod_revision=second)], [Put("/b", b"x"), Delete("/a")])
    assert done == second + 1
    assert await store.get("/a") is None
    both = Compare("/b", create_revision=done, mod_revision=done)
    assert await store.transact([both], [Put("/b", b"y")]) == done + 1


async def test_a_key_keeps_its_creation_revision_and_a_prefix_is_deleted_in_one(backend: Backend) -> None:
    store = backend.client()
    created = await put(store, "/k", b"1")
    changed = await put(store, "/k", b"2")
    entry = await store.get("/k")
    assert (entry.create_revision, entry.mod_revision) == (created, changed)
    await store.transact([], [Delete("/k")])
    again = await put(store, "/k", b"3")
    assert await store.transact([Compare("/k", create_revision=created)], [Delete("/k")]) is None
    assert await store.transact([Compare("/k", create_revision=again)], [Delete("/k")]) is not None
    for key in ("/a/b/1", "/a/b/2", "/a/bc"):
        last = await put(store, key)
    assert await store.transact([], [Delete("/a/b/", prefix=True)]) == last + 1
    assert [entry.key for entry in (await store.list("/a/")).entries] == ["/a/bc"]
    assert await store.transact([], [Delete("/a/b/", prefix=True), Delete("/none")]) == last + 1, "nothing changed"


async def test_a_list_has_all_below_its_prefix_in_order(backend: Backend) -> None:
    store = backend.client()
    count = LIST_PAGE_KEYS + 500
    names = [f"/n/{n:06d}" for n in range(count)]
    for part in _parts(names, 100):
        await store.transact([], [Put(name, name.encode()) for name in part])
    last = await put(store, "/n.other")
    snapshot = await store.list("/n/")
    assert [entry.key for entry in snapshot.entries] == names
    assert all(entry.value == entry.key.encode() for entry in snapshot.entries)
    assert snapshot.revision == last


def _parts(names: list[str], size: int) -> list[list[str]]:
    return [names[at : at + size] for at in range(0, len(names), size)]


async def test_what_etcd_would_refuse_is_refused_before(backend: Backend) -> None:
    store = backend.client()
    many = [Put(f"/{n}", b"") for n in range(TRANSACTION_OPS_MAX + 1)]
    for then in (
        many,
        [Put("/large", bytes(TRANSACTION_BYTES_MAX + 1))],
        [Put("/twice", b"1"), Put("/twice", b"2")],
        [Put("/a/1", b""), Delete("/a/", prefix=True)],
    ):
        with pytest.raises(InvalidArgument):
            await store.transact([], then)
    with pytest.raises(InvalidArgument):
        await store.transact([absent(f"/{n}") for n in range(TRANSACTION_OPS_MAX + 1)], [])
    assert await store.transact([absent(f"/{n}") for n in range(TRANSACTION_OPS_MAX)], many[:-1]) is not None
    assert await store.transact([], [Put("/large", bytes(TRANSACTION_BYTES_MAX - 6))]) is not None


# --- leases ---
async def test_a_key_can_be_compared_with_the_lease_it_ends_with(backend: Backend) -> None:
    store = backend.client()
    lease, other = await store.grant_lease(5), await store.grant_lease(5)
    await put(store, "/a", b"1", lease)
    entry = await store.get("/a")
    assert entry.lease == lease
    (listed,) = (await store.list("/a")).entries
    assert listed.lease == lease
    assert await store.transact([Compare("/a", lease=other)], [Put("/a", b"2", other)]) is None
    assert await store.transact([Compare("/a", lease=0)], [Delete("/a")]) is None
    assert await store.transact([Compare("/a", lease=lease)], [Put("/a", b"3", lease)]) is not None
    await store.revoke_lease(lease)
    assert await store.transact([Compare("/a", lease=lease)], [Put("/a", b"4", lease)]) is None
    assert await store.get("/a") is None
    assert await store.transact([Compare("/a", lease=0)], [Put("/a", b"5")]) is not None


async def test_who_lives_is_never_written_without_a_lease(backend: Backend) -> None:
    store = backend.client()
    for key in (keys.LEADER, keys.broker_key("b"), keys.address_key("h:1"), keys.left_key("b")):
        with pytest.raises(AssertionError, match="would be written without a lease"):
            await store.transact([], [Put(key, b"")])
        assert await store.get(key) is None


async def test_keys_die_with_their_lease_in_one_revision(backend: Backend) -> None:
    store, other = backend.client(), backend.client()
    lease = await store.grant_lease(TTL_S)
    assert await store.renew_lease(lease) == TTL_S, "the store grants the requested time"
    revision = await store.transact([], [Put("/1", b"", lease), Put("/2", b"", lease), Put("/stays", b"")])
    assert revision is not None
    watch = other.watch("/", revision + 1)
    [ended] = await take(watch, 1)
    await end_watch(watch)
    assert (sorted(ended.deletes), ended.puts) == (["/1", "/2"], ())
    assert [entry.key for entry in (await store.list("/")).entries] == ["/stays"]
    assert await store.renew_lease(lease) == 0
    await store.revoke_lease(lease)
    with pytest.raises(LeaseEnded):
        await store.transact([], [Put("/new", b""), Put("/3", b"", lease)])
    assert await store.get("/new") is None


async def test_a_renewed_lease_lives_and_a_key_put_again_without_it_outlives_it(backend: Backend) -> None:
    store = backend.client()
    lease = await store.grant_lease(TTL_S)
    await put(store, "/k", lease=lease)
    await put(store, "/kept", lease=lease)
    await put(store, "/kept")
    for _ in range(4):
        await asyncio.sleep(TTL_S / 2)
        assert await store.renew_lease(lease) == TTL_S
    assert await store.get("/k") is not None
    await store.revoke_lease(lease)
    assert await store.get("/k") is None
    assert await store.get("/kept") is not None


# --- watches ---
async def test_a_watch_gets_everything_once_and_in_order(backend: Backend) -> None:
    writers = [backend.client() for _ in range(3)]
    reader = backend.client()
    begin = await put(writers[0], "/begin")

    async def write(store: MetaStore, name: int) -> list[int]:
        return [await put(store, f"/w/{name}", str(n).encode()) for n in range(40)]

    early = reader.watch("/w/", begin + 1)
    first = asyncio.create_task(take(early, 120))
    revisions = await asyncio.gather(*(write(store, name) for name, store in enumerate(writers)))
    late = reader.watch("/w/", begin + 1)
    live, replayed = await first, await take(late, 120)
    await end_watch(early)
    await end_watch(late)
    assert [changes.revision for changes in live] == sorted(itertools.chain(*revisions))
    assert live == replayed
    for name in range(3):
        values = [c.puts[0].value for c in live if c.puts[0].key == f"/w/{name}"]
        assert values == [str(n).encode() for n in range(40)]


async def test_a_watch_shows_each_transaction_whole_and_only_its_prefix(backend: Backend) -> None:
    store = backend.client()
    await store.transact([], [Put("/in/a", b"1"), Put("/in/b", b"2"), Put("/out", b"3")])
    await put(store, "/out")
    last = await store.transact([], [Delete("/in/a"), Put("/in/b", b"4")])
    watch = store.watch("/in/", 2)
    created, changed = await take(watch, 2)
    await end_watch(watch)
    assert [(entry.key, entry.value) for entry in created.puts] == [("/in/a", b"1"), ("/in/b", b"2")]
    assert (changed.revision, changed.deletes) == (last, ("/in/a",))
    assert [(e.value, e.create_revision, e.mod_revision) for e in changed.puts] == [(b"4", 2, last)]


async def test_a_watch_of_compacted_or_future_history_is_refused(backend: Backend) -> None:
    store = backend.client()
    first = await put(store, "/k")
    for _ in range(4):
        last = await put(store, "/k")
    early = store.watch("/k", last + 2)
    with pytest.raises(OutOfRange, match="was restored; list again"):  # it would stay silent until that revision
        await take(early, 1)
    await end_watch(early)
    await backend.compact(last)
    watch = store.watch("/k", first)
    with pytest.raises(OutOfRange):
        await take(watch, 1)
    next_one = store.watch("/k", last + 1)
    for _ in range(3):  # a watch that keeps up survives compaction
        revision = await put(store, "/k")
        await backend.compact(revision)
        assert [c.revision for c in await take(next_one, 1)] == [revision]
    await end_watch(next_one)


async def test_an_idle_watch_stays_open_and_waits_for_the_next_revision(backend: Backend) -> None:
    store = backend.client()
    now = await put(store, "/k")
    watch = store.watch("/k", now + 1)
    waiting = asyncio.create_task(take(watch, 1))
    await asyncio.sleep(3)
    assert not waiting.done()
    last = await put(store, "/k")
    [changes] = await waiting
    assert changes.revision == last == now + 1
    await end_watch(watch)
    waiting = asyncio.create_task(take(store.watch("/k", last + 1), 1))
    await asyncio.sleep(0.1)
    await store.close()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await store.get("/k")


# --- outages ---
async def test_a_killed_store_keeps_its_data_and_says_so_to_watchers(backend: Backend) -> None:
    store = backend.client()
    revision = await put(store, "/k", b"kept")
    watch = store.watch("/k", revision + 1)
    waiting = asyncio.create_task(anext(watch))
    await asyncio.sleep(0.2)
    await backend.stop()
    async with asyncio.timeout(GIVE_UP_S):
        with pytest.raises(Unavailable):
            await waiting
        with pytest.raises(Unavailable):
            await store.get("/k")
        with pytest.raises(Unavailable):
            await store.transact([], [Put("/lost", b"")])
    await backend.start()
    entry = await store.get("/k")
    assert entry.value == b"kept"
    assert await put(store, "/k") == revision + 1


async def test_a_frozen_store_is_noticed_and_serves_again_when_thawed(backend: Backend) -> None:
    store = backend.client()
    revision = await put(store, "/k")
    watch = store.watch("/k", revision + 1)
    waiting = asyncio.create_task(anext(watch))
    await asyncio.sleep(0.2)
    frozen = asyncio.get_running_loop().time()
    backend.freeze()
    try:
        async with asyncio.timeout(GIVE_UP_S):
            with pytest.raises(Unavailable):
                await waiting
            assert asyncio.get_running_loop().time() - frozen < PROBE_AFTER_S + CALL_TIMEOUT_S + 1.5
            with pytest.raises(Unavailable):
                await store.get("/k")
    finally:
        backend.thaw()
    assert await store.get("/k") is not None
    async with contextlib.aclosing(store.watch("/k", revision)) as again:  # type: ignore[type-var]
        assert [c.revision for c in await take(again, 1)] == [revision]
