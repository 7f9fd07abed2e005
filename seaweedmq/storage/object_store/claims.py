"""Claims of numbers on an object store."""

import asyncio
import contextlib
from collections.abc import Collection

from seaweedmq.codec.paths import claim_path, claims_dir, parse_claim_name
from seaweedmq.errors import AlreadyExists, NotFound
from seaweedmq.model.claims import ClaimKind
from seaweedmq.ports import Objects, ObjectState


async def create_claim(objects: Objects, kind: ClaimKind, number: int, content: bytes) -> None:
    """Create a claim, or raise AlreadyExists: also for an own attempt whose answer was lost, which wastes a number."""
    key = claim_path(kind, number)
    try:
        await objects.create(key, [content])
    except AlreadyExists:
        raise AlreadyExists(f"{objects.uri}/{key} exists, number {number} is taken: take another one") from None


async def read_claims(objects: Objects, kind: ClaimKind) -> dict[int, bytes]:
    """Return the content of each claim, by number; empty ones need no request of their own."""
    claims: dict[int, bytes] = {}

    async def read(number: int, state: ObjectState) -> None:
        with contextlib.suppress(NotFound):
            claims[number] = bytes((await objects.get(state.key)).content) if state.size_bytes else b""

    found = (await objects.list_folder(claims_dir(kind))).objects
    numbered = [(parse_claim_name(state.key.rpartition("/")[2]), state) for state in found]
    await asyncio.gather(*(read(number, state) for number, state in numbered if number is not None))
    return claims


async def delete_claims(objects: Objects, kind: ClaimKind, numbers: Collection[int]) -> None:
    """Delete claims; missing ones are ignored."""
    await objects.delete([claim_path(kind, number) for number in numbers])
