"""A Delta log on an object store. Blocking.

A version is an object that is created once. If it exists with the same content, it is this process's own, of an attempt
whose answer was lost, or an equal commit of another process, which has the same effect.
"""

from collections.abc import Iterable

from seaweedmq.errors import Conflict
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.tables.delta.log_folder import LogFolder, Stamp, commit_name


class ObjectLog(LogFolder):
    """The Delta log of a topic, which exists once it has a version."""

    def __init__(self, place: ObjectPlace, folder: str) -> None:
        super().__init__(place.where(folder))
        self._place = place
        self._folder = folder

    def stamp(self, version: int) -> Stamp | None:
        """Return the stamp of a commit; None if there is no such object."""
        try:
            found = self._place.object_state(self._path(commit_name(version)))
        except FileNotFoundError:
            return None
        return found.e_tag, found.modified_us * 1_000, found.size_bytes

    def put_commit(self, version: int, data: bytes) -> Stamp:
        """Add a version; raises Conflict if another process did, or the log was set aside meanwhile."""
        try:
            self._place.create(self._path(commit_name(version)), data)
        except FileExistsError:
            raise Conflict(f"{self.where}: version {version} was written by another process") from None
        stamp = self.stamp(version)
        if stamp is None or self._is_alone(version):
            raise Conflict(f"{self.where} was set aside by another process")
        return stamp

    def _is_alone(self, version: int) -> bool:
        """Whether the versions before one were set aside meanwhile; it is deleted, since no reader can use it."""
        if version == 0 or self.stamp(version - 1) is not None:
            return False
        if any(checkpoint >= version - 1 for checkpoint in self.listing().checkpoints):
            return False  # older versions were removed
        self._remove([commit_name(version)])
        return True

    def remove_stale_temporaries(self, now_s: float) -> None:
        """Do nothing: an object appears as a whole."""

    def _names(self) -> list[str]:
        try:
            return self._place.listdir(self._folder)
        except FileNotFoundError:
            return []

    def _read(self, name: str) -> bytes | None:
        try:
            return self._place.read(self._path(name))
        except FileNotFoundError:
            return None

    def _replace(self, name: str, data: bytes) -> None:
        self._place.replace(self._path(name), data)

    def _remove(self, names: Iterable[str]) -> None:
        self._place.delete(*map(self._path, names))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
