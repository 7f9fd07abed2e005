"""Removal of what dead sinks left below a topic, and beside the topics.

A sweep runs when a sink is planned, in a process that may end a moment later: no steady clock reaches from one sweep to
the next. So the first sweep that finds a thing due by its dates writes the verdict down, as an empty file whose date is
that of the sweep. The thing goes at a later sweep, the doubt (``core.clock_doubt``) after the verdict, if every sweep
in between found it due. One that does not takes the verdict back. A clock that is ahead for a while dates verdicts
ahead as well: none is old enough before the clock is right again, and then none holds.
"""

import contextlib
import os
from pathlib import Path

from seaweedmq.codec.paths import sink_dir, sink_marks_dir, sink_of_mark, staged_dir, topic_dir
from seaweedmq.core.clock_doubt import CLOCK_DOUBT_S
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.staging import DONE, MANIFEST, ONCE, failing, remove_tree
from seaweedmq.storage.store.faults import NO_SPACE
from seaweedmq.storage.store.file_io import TEMPORARY_PREFIX, clock_s, remove_stale_temporaries

SWEPT_AGE_S = 86_400.0
"""Age of a batch without a manifest that no sink completes."""
DONE_AGE_S = 30 * 86_400.0
"""Age of a sink that has finished nothing since, and is removed."""
SWEPT_MAX = 100
"""Folders that one sweep removes at most."""
VERDICT_PREFIX = ".due-"
VERDICTS_MAX = 1_000
"""Things that are found due at a time; more wait for a later sweep."""


class _Verdicts:
    """Things that are due, as of this sweep and as of earlier ones."""

    def __init__(self, folder: Path, now_s: float) -> None:
        self._folder = folder
        self._now_s = now_s
        self._due: set[str] = set()

    def is_confirmed(self, thing: str) -> bool:
        """Note that a thing is due now; return whether it was due long enough ago, and at every sweep since."""
        if len(self._due) == VERDICTS_MAX:
            return False
        self._due.add(f"{VERDICT_PREFIX}{thing}")
        verdict = self._folder / f"{VERDICT_PREFIX}{thing}"
        try:
            age_s = self._now_s - verdict.stat().st_mtime
        except FileNotFoundError:
            age_s = -1.0
        if age_s < 0:
            try:
                verdict.touch()
            except OSError as error:
                if error.errno not in NO_SPACE:  # a full storage keeps it for a later sweep
                    raise
        return age_s >= CLOCK_DOUBT_S

    def take_back(self) -> None:
        """Remove the verdicts on things that were not due in this sweep, or are gone."""
        for path in self._folder.iterdir():
            if path.name.startswith(VERDICT_PREFIX) and path.name not in self._due:
                path.unlink(missing_ok=True)


def sweep(root: Path, topic: TopicName) -> int:
    """Remove what dead sinks left: batches that have no manifest, or that no sink comes back for, and marks of long
    ago, up to ``SWEPT_MAX``; and what was written aside by killed processes. Return how many folders went."""
    swept = 0
    top = root / staged_dir(topic)
    with failing("sweep", top), contextlib.suppress(FileNotFoundError):
        now_s = clock_s(root / topic_dir(topic))
        verdicts = _Verdicts(top, now_s)
        remove_stale_temporaries(root / topic_dir(topic), now_s)
        for sink in sorted(p for p in top.iterdir() if p.is_dir()):
            for folder in sorted(p for p in sink.iterdir() if p.is_dir()):
                with contextlib.suppress(FileNotFoundError):
                    is_old = now_s - _touched_s(folder) > SWEPT_AGE_S
                    is_wanted = (folder / MANIFEST).exists() and not sink.name.startswith(ONCE)
                    is_due = is_old and not is_wanted and verdicts.is_confirmed(f"{sink.name}-{folder.name}")
                    if is_due and swept < SWEPT_MAX:
                        remove_tree(folder)
                        swept += 1
            with contextlib.suppress(FileNotFoundError):
                age_s = now_s - _touched_s(sink)
                left = [path.name for path in sink.iterdir() if not path.name.startswith(TEMPORARY_PREFIX)]
                is_due = age_s > (DONE_AGE_S if left else SWEPT_AGE_S) and left in ([], [DONE])
                if not is_due:
                    remove_stale_temporaries(sink, now_s)  # a change of the folder, which would be young again
                elif verdicts.is_confirmed(sink.name):
                    remove_tree(sink)
                    swept += 1
        _sweep_marks(root, topic, now_s, verdicts)
        verdicts.take_back()
    return swept


def _sweep_marks(root: Path, topic: TopicName, now_s: float, verdicts: _Verdicts) -> None:
    """A mark is as young as its sink is alive, to a day: it goes ``DONE_AGE_S`` after what that has in the topic."""
    with contextlib.suppress(FileNotFoundError):
        for mark in (root / sink_marks_dir(topic)).iterdir():
            with contextlib.suppress(FileNotFoundError):
                age_s = now_s - mark.stat().st_mtime
                if (root / sink_dir(topic, sink_of_mark(mark.name))).exists():
                    if age_s > SWEPT_AGE_S:
                        os.utime(mark)
                elif age_s > DONE_AGE_S and verdicts.is_confirmed(f"mark-{mark.name}"):
                    mark.unlink()


def _touched_s(folder: Path) -> float:
    """Return the date of the last change of a folder, or of what it holds."""
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
