"""The probe of an object store at the start: whether it keeps the two promises that all correctness rests on.

It creates a few small objects below ``.probe/`` and deletes them. A store may pass it and nevertheless break a promise
rarely: the probe finds stores that do not have the feature, not races within one that has it.
"""

import asyncio
import contextlib
import logging
import random

from seaweedmq.errors import AlreadyExists, Conflict, NotFound, StorageFailed
from seaweedmq.ports import Objects

logger = logging.getLogger(__name__)

FOLDER = ".probe"
CREATES_AT_ONCE = 8
WRONG_E_TAG = '"0123456789abcdef0123456789abcdef"'
"""Version that no object has."""
_LOSS = "acknowledged records could be lost"
_REMEDY = "use a store that has conditional writes, such as S3, GCS, Azure, MinIO, Ceph or versitygw"


async def probe(objects: Objects, rng: random.Random, *, timeout_s: float = 30.0) -> None:
    """Verify that a store creates and replaces atomically, and reads and lists what was written.

    Args:
        objects: The store.
        rng: Source of names that no other process probes at the same time.
        timeout_s: Deadline of each request.

    Raises:
        StorageFailed: If the bucket is missing, in another region or not permitted, or if the store ignores conditions
            or does not show what was written. The message has the remedy.
    """
    folder = f"{FOLDER}/{rng.getrandbits(64):016x}"
    created = f"{folder}/created"
    contested = [f"{folder}/contested-{number}" for number in range(2)]
    try:
        with contextlib.suppress(AlreadyExists):  # an own attempt whose answer was lost: the name is random
            await objects.create(created, [b"probe"], timeout_s=timeout_s)
        await _check_second_create(objects, created, timeout_s)
        for key in contested:
            await _check_contest(objects, key, timeout_s)
        await _check_replace(objects, created, timeout_s)
        await _check_shown(objects, folder, created, timeout_s)
    finally:
        await _clean(objects, [created, *contested], timeout_s)


async def _check_second_create(objects: Objects, key: str, timeout_s: float) -> None:
    try:
        await objects.create(key, [b"second"], timeout_s=timeout_s)
    except AlreadyExists:
        return
    raise StorageFailed(f"{objects.uri} created {key} twice, so it ignores If-None-Match: {_LOSS}; {_REMEDY}")


async def _check_contest(objects: Objects, key: str, timeout_s: float) -> None:
    """Create an object several times at once: one content must be there, and no other creation may have succeeded."""
    names = [b"%d" % number for number in range(CREATES_AT_ONCE)]
    calls = (objects.create(key, [name], timeout_s=timeout_s) for name in names)
    results = await asyncio.gather(*calls, return_exceptions=True)
    failed = next((r for r in results if isinstance(r, BaseException) and not isinstance(r, AlreadyExists)), None)
    if failed is not None:
        raise failed
    winners = [name for name, result in zip(names, results, strict=True) if not isinstance(result, AlreadyExists)]
    stored = bytes((await objects.get(key, timeout_s=timeout_s)).content)
    # A winner whose answer was lost and retried sees its own object, so there may be none, but never another one.
    if stored not in names or any(winner != stored for winner in winners):
        raise StorageFailed(
            f"{objects.uri} accepted {len(winners)} of {CREATES_AT_ONCE} creations of {key} at once, so "
            f"its creations are not atomic: {_LOSS}; {_REMEDY}"
        )


async def _check_replace(objects: Objects, key: str, timeout_s: float) -> None:
    try:
        await objects.replace(key, [b"wrong"], e_tag=WRONG_E_TAG, timeout_s=timeout_s)
    except Conflict:
        pass
    else:
        raise StorageFailed(
            f"{objects.uri} replaced {key} although its version differed, so it ignores If-Match: "
            f"metadata could be lost; {_REMEDY}"
        )
    e_tag = (await objects.head(key, timeout_s=timeout_s)).e_tag
    try:
        await objects.replace(key, [b"replaced"], e_tag=e_tag, timeout_s=timeout_s)
    except Conflict:  # an own attempt whose answer was lost, if the content is there
        if bytes((await objects.get(key, timeout_s=timeout_s)).content) != b"replaced":
            raise StorageFailed(
                f"{objects.uri} rejects a replacement of the right version of {key}: {_REMEDY}"
            ) from None


async def _check_shown(objects: Objects, folder: str, key: str, timeout_s: float) -> None:
    try:
        content = bytes((await objects.get(key, timeout_s=timeout_s)).content)
    except NotFound:
        content = b""
    listed = [state.key async for page in objects.list(folder, timeout_s=timeout_s) for state in page]
    if content != b"replaced" or key not in listed:
        missing = "list" if content == b"replaced" else "return"
        raise StorageFailed(
            f"{objects.uri} does not {missing} {key} right after it was written: "
            "use a store whose reads and listings are strongly consistent, without a cache in between"
        )


async def _clean(objects: Objects, keys: list[str], timeout_s: float) -> None:
    """Delete the objects of the probe; those that stay harm nothing."""
    try:
        await objects.delete(keys, timeout_s=timeout_s)
    except StorageFailed as error:
        logger.warning("probe left behind: %s/%s: %s", objects.uri, FOLDER, error)
