"""Entries of one broker's sequence in an object store, by number."""

import random
from collections.abc import Collection, Iterable

from seaweedmq.codec.bundle import HEADER_BYTES, decode_entry, decode_header, encode_bundle
from seaweedmq.codec.object_keys import bundle_key, bundles_folder, parse_bundle_key
from seaweedmq.errors import AlreadyExists, NotFound
from seaweedmq.model.bundle import NONCE_BYTES, BundleRun, EntryHeader, EntryIndex, EntryKind
from seaweedmq.ports import Buffers, Objects

INDEX_READ_BYTES = 64 * 1024
"""First read of an entry: header and index of most entries fit in it."""
REQUEST_TIMEOUT_S = 10.0
"""Deadline in seconds of a request for a header or an index, with its retries."""
RUN_TIMEOUT_S = 30.0
"""Deadline in seconds of a request for the frames of one run."""


class SequenceEntries:
    """The entries of one broker's sequence. All methods raise StorageFailed if the store does not answer in time."""

    def __init__(self, objects: Objects, broker_id: str) -> None:
        self.broker_id = broker_id
        self._objects = objects

    def name(self, number: int) -> str:
        """Return the location of an entry, for messages."""
        return f"{self._objects.uri}/{bundle_key(self.broker_id, number)}"

    async def create(self, number: int, content: Buffers, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Create an entry, or raise AlreadyExists, perhaps because of an earlier attempt of the same call."""
        await self._objects.create(bundle_key(self.broker_id, number), content, timeout_s=timeout_s)

    async def header(self, number: int) -> EntryHeader | None:
        """Return the header of an entry; None if there is none. Raises Corrupt, Unsupported."""
        data = await self._read(number, HEADER_BYTES)
        return None if data is None else decode_header(data, self.name(number)).header

    async def index(self, number: int) -> EntryIndex | None:
        """Return an entry without its frames; None if there is none. Raises Corrupt, Unsupported."""
        data = await self._read(number, INDEX_READ_BYTES)
        if data is None:
            return None
        prefix = decode_header(data, self.name(number))
        if prefix.prefix_bytes > len(data):
            data = await self._read(number, prefix.prefix_bytes)
            if data is None:
                return None
        return decode_entry(data, self.name(number))

    async def frames(self, number: int, run: BundleRun) -> memoryview | None:
        """Return the frames of a run, unverified; None if the entry was deleted."""
        key = bundle_key(self.broker_id, number)
        try:
            return await self._objects.get_range(key, run.position, run.position + run.length, timeout_s=RUN_TIMEOUT_S)
        except NotFound:
            return None

    async def numbers(self) -> set[int]:
        """Return the numbers of all entries. Objects of other names are ignored."""
        found: set[int] = set()
        async for page in self._objects.list(bundles_folder(self.broker_id), timeout_s=REQUEST_TIMEOUT_S):
            found.update(parsed[1] for state in page if (parsed := parse_bundle_key(state.key)) is not None)
        return found

    async def delete(self, numbers: Collection[int]) -> None:
        """Delete entries; missing ones are ignored."""
        await self._objects.delete([bundle_key(self.broker_id, number) for number in numbers])

    async def _read(self, number: int, length: int) -> memoryview | None:
        key = bundle_key(self.broker_id, number)
        try:
            return await self._objects.get_range(key, 0, length, timeout_s=REQUEST_TIMEOUT_S)
        except NotFound:
            return None


async def has_bundles(objects: Objects, broker_ids: Iterable[str]) -> bool:
    """Whether one of these brokers has bundles, which may hold frames that no log object has yet."""
    for broker_id in broker_ids:
        if len(await SequenceEntries(objects, broker_id).numbers()) > 1:
            return True
    return False


def new_nonce(rng: random.Random) -> bytes:
    """Return random bytes by which a writer recognizes its own entry."""
    return rng.randbytes(NONCE_BYTES)


async def begin_sequence(entries: SequenceEntries, *, rng: random.Random, wall_us: int) -> None:
    """Put entry 0 of a new broker, before it registers.

    Raises:
        AlreadyExists: If the id has a sequence, perhaps one that a leader ended early: take another id.
        StorageFailed: If the entry may or may not exist now: take another id, or stop.
    """
    header = EntryHeader(
        kind=EntryKind.FULL_CHECKPOINT, number=0, floor=0, done=0, checkpoint=0, nonce=new_nonce(rng), time_us=wall_us
    )
    try:
        await entries.create(0, encode_bundle(header, ()).buffers)
    except AlreadyExists:
        found = await entries.header(0)
        if found is None or found.nonce != header.nonce:
            raise AlreadyExists(
                f"{entries.name(0)} exists: broker id {entries.broker_id} was used before, take another one"
            ) from None
