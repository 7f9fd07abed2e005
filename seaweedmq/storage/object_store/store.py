"""Segment store below a prefix of an object store."""

from collections.abc import Collection, Mapping, Sequence

from seaweedmq.model.claims import ClaimKind
from seaweedmq.model.cluster import StorageMarker
from seaweedmq.ports import StorageSpace
from seaweedmq.storage.object_store import claims, journals
from seaweedmq.storage.object_store.topic_objects import TopicObjects


class ObjectSegmentStore(TopicObjects):
    """A ``ports.SegmentStore`` and ``ports.LogObjects`` on an object store. Belongs to the event loop.

    Methods raise StorageFailed if the store fails or lacks the marker of its cluster.
    """

    async def close(self) -> None:
        """Do nothing: clients have no end of their own."""

    async def verify_root(self) -> None:
        """Check that the prefix has the marker of the bound cluster, as a check within the interval found it."""
        await self.root.verify_often()

    async def read_marker(self) -> StorageMarker | None:
        """Read the marker; None if there is none."""
        return await self.root.read_marker()

    async def create_marker(self, marker: StorageMarker) -> StorageMarker:
        """Create the marker unless there is one; return the marker of the prefix."""
        return await self.root.create_marker(marker)

    async def replace_marker(self, marker: StorageMarker) -> None:
        """Replace the marker of the same cluster by a later one."""
        await self.root.replace_marker(marker)

    async def check(self) -> None:
        """Check that the store takes and shows an object."""
        await self.now_us()

    async def now_us(self) -> int:
        """Return the time of the store's clock, in microseconds since 1970 UTC; stores round it to seconds."""
        await self.root.verify_often()
        return await self.root.now_us()

    async def space(self) -> StorageSpace | None:
        """Return None: object stores report no space."""
        return None

    async def create_claim(self, kind: ClaimKind, number: int, content: bytes) -> None:
        """Create the claim of a number."""
        await self.root.verify_often()
        await claims.create_claim(self.objects, kind, number, content)

    async def read_claims(self, kind: ClaimKind) -> Mapping[int, bytes]:
        """Return the content of each claim, by number."""
        await self.root.verify_often()
        return await claims.read_claims(self.objects, kind)

    async def delete_claims(self, kind: ClaimKind, numbers: Collection[int]) -> None:
        """Delete claims; ignore deleted ones."""
        await self.root.verify_often()
        await claims.delete_claims(self.objects, kind, numbers)

    async def create_journal(self, name: str) -> journals.ObjectJournal:
        """Create a group journal and return its writer."""
        await self.root.verify_often()
        return await journals.create_journal(self.objects, self.root, name)

    async def list_journals(self) -> list[str]:
        """List the names of the group journals."""
        await self.root.verify_often()
        return await journals.list_journals(self.objects)

    async def read_journal(self, name: str) -> bytes:
        """Read a group journal."""
        await self.root.verify_often()
        return await journals.read_journal(self.objects, name)

    async def delete_journals(self, names: Sequence[str]) -> None:
        """Delete group journals; ignore deleted ones."""
        await self.root.verify_often()
        await journals.delete_journals(self.objects, names)
