"""Sweep of the files that dead sinks left below a topic and beside the topics.

A sweep runs when a sink is planned, in a process that may end a moment later, so no steady clock spans two sweeps. The
first sweep that finds an entry due by its dates records a verdict: an empty file dated at the sweep. A later sweep
removes the entry once the verdict is older than the doubt (``core.clock_doubt``) and every sweep in between found the
entry due. A sweep that does not find it due deletes the verdict. A clock that is ahead for a while also dates verdicts
ahead: none is old enough before the clock is right again, and then the entry is not due.
"""

import contextlib

from seaweedmq.codec.paths import sink_dir, sink_marks_dir, sink_of_mark, staged_dir, topic_dir
from seaweedmq.core.clock_doubt import CLOCK_DOUBT_S
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.faults import NO_SPACE, failing
from seaweedmq.storage.file_io import TEMPORARY_PREFIX
from seaweedmq.storage.place import Place
from seaweedmq.storage.staging import DONE, MANIFEST, ONCE

SWEPT_AGE_S = 86_400.0
"""Age in seconds at which a batch without a manifest counts as abandoned."""
DONE_AGE_S = 30 * 86_400.0
"""Age in seconds at which a sink without a newly completed batch is removed."""
SWEPT_MAX = 100
"""Limit of the folders that one sweep removes."""
VERDICT_PREFIX = ".due-"
VERDICTS_MAX = 1_000
"""Limit of the entries that one sweep finds due; more wait for a later sweep."""


class _Verdicts:
    """The verdicts on due entries, of this sweep and earlier ones."""

    def __init__(self, place: Place, folder: str, now_s: float) -> None:
        self._place = place
        self._folder = folder
        self._now_s = now_s
        self._due: set[str] = set()

    def is_confirmed(self, thing: str) -> bool:
        """Record that an entry is due; return whether its verdict is old enough and every sweep since confirmed it."""
        if len(self._due) == VERDICTS_MAX:
            return False
        self._due.add(f"{VERDICT_PREFIX}{thing}")
        verdict = f"{self._folder}/{VERDICT_PREFIX}{thing}"
        try:
            age_s = self._now_s - self._place.modified_us(verdict) / US_PER_S
        except FileNotFoundError:
            age_s = -1.0
        if age_s < 0:
            try:
                self._place.touch(verdict)
            except OSError as error:
                if error.errno not in NO_SPACE:  # on full storage a later sweep records it
                    raise
        return age_s >= CLOCK_DOUBT_S

    def take_back(self) -> None:
        """Delete the verdicts on entries that this sweep did not find due, or that no longer exist."""
        for name in self._place.listdir(self._folder):
            if name.startswith(VERDICT_PREFIX) and name not in self._due:
                self._place.delete(f"{self._folder}/{name}")


def sweep(place: Place, topic: TopicName) -> int:
    """Remove the leftovers of dead sinks and return the number of removed folders, at most ``SWEPT_MAX``.

    Leftovers are batches without a manifest, batches of sinks that write once, old marks of sinks, and temporary files
    of killed processes.
    """
    swept = 0
    top = staged_dir(topic)
    with failing("sweep", place.where(top)), contextlib.suppress(FileNotFoundError):
        now_s = place.clock_s(topic_dir(topic))
        verdicts = _Verdicts(place, top, now_s)
        place.remove_stale_temporaries(topic_dir(topic), now_s)
        for name in _folders(place, top):
            sink = f"{top}/{name}"
            for batch in _folders(place, sink):
                folder = f"{sink}/{batch}"
                with contextlib.suppress(FileNotFoundError):
                    is_old = now_s - place.touched_s(folder) > SWEPT_AGE_S
                    is_wanted = place.has(f"{folder}/{MANIFEST}") and not name.startswith(ONCE)
                    is_due = is_old and not is_wanted and verdicts.is_confirmed(f"{name}-{batch}")
                    if is_due and swept < SWEPT_MAX:
                        place.remove_tree(folder)
                        swept += 1
            with contextlib.suppress(FileNotFoundError):
                age_s = now_s - place.touched_s(sink)
                left = [each for each in place.listdir(sink) if not each.startswith(TEMPORARY_PREFIX)]
                is_due = age_s > (DONE_AGE_S if left else SWEPT_AGE_S) and left in ([], [DONE])
                if not is_due:
                    place.remove_stale_temporaries(sink, now_s)  # not of a due sink: it would change the folder's date
                elif verdicts.is_confirmed(name):
                    place.remove_tree(sink)
                    swept += 1
        _sweep_marks(place, topic, now_s, verdicts)
        verdicts.take_back()
    return swept


def _sweep_marks(place: Place, topic: TopicName, now_s: float, verdicts: _Verdicts) -> None:
    """Remove the marks of sinks whose folder was removed ``DONE_AGE_S`` ago; a live sink's mark is redated daily."""
    with contextlib.suppress(FileNotFoundError):
        for name in place.listdir(sink_marks_dir(topic)):
            mark = f"{sink_marks_dir(topic)}/{name}"
            with contextlib.suppress(FileNotFoundError):
                age_s = now_s - place.modified_us(mark) / US_PER_S
                if place.has(sink_dir(topic, sink_of_mark(name))):
                    if age_s > SWEPT_AGE_S:
                        place.touch(mark)
                elif age_s > DONE_AGE_S and verdicts.is_confirmed(f"mark-{name}"):
                    place.delete(mark)


def _folders(place: Place, folder: str) -> list[str]:
    return [name for name, is_folder in place.entries(folder) if is_folder]
