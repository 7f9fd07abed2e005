"""The cutter of bundles, as transcripts: what is pending, the time, and what is cut."""

from seaweedmq.core.segment.bundling import BundleCutter, BundleLimits, CutAction, PendingFrame, PutBundle, WriteLog
from seaweedmq.model.bundle import BundledFrame, BundleRun
from seaweedmq.model.segment import ReplicaKey

LIMITS = BundleLimits(bundle_bytes=80, direct_bytes=40, log_bytes=80, logs_max=2, bundles_max=2)


class Transcript:
    """A cutter, step by step. Segments have letters, and each frame one record."""

    def __init__(self) -> None:
        self.cutter = BundleCutter(LIMITS)
        self.ends: dict[str, int] = {}
        self.lines: list[str] = []
        self.logs: list[BundleRun] = []

    def add(self, at: float, segment: str, *sizes: int, stored: bool = True) -> None:
        key = ReplicaKey(7, ord(segment) - ord("a"))
        for size in sizes:
            base = self.ends.get(segment, 0)
            frame = PendingFrame(base, size, BundledFrame(1, 0, base, 1))
            self.cutter.add(key, frame, at, is_stored=stored)
            self.ends[segment] = base + 1
        self.note(f"{at:.2f} {segment} has {', '.join(map(str, sizes))}")

    def cut(self, at: float) -> None:
        self.note(f"{at:.2f} cut: {', '.join(map(self.told, self.cutter.cut(at))) or '-'}")

    def told(self, action: CutAction) -> str:
        match action:
            case WriteLog(run):
                self.logs.append(run)
                return f"log {_run(run)}"
            case PutBundle(number, runs, references):
                return f"bundle {number} of {' '.join([*(f'ref {_run(r)}' for r in references), *map(_run, runs)])}"

    def log_written(self, number: int) -> None:
        self.cutter.log_written(self.logs[number])
        self.note(f"log {_run(self.logs[number])} is written")

    def note(self, line: str) -> None:
        due = self.cutter.due_s()
        self.lines.append(f"{line} (due {'-' if due is None else f'{due:.2f}'})")


def _run(run: BundleRun) -> str:
    return f"{chr(ord('a') + run.segment)}[{run.base_offset},{run.end_offset})"


def test_the_first_frame_is_cut_at_once_and_later_ones_at_the_interval() -> None:
    transcript = Transcript()
    transcript.add(5.0, "a", 1)
    transcript.cut(5.0)
    transcript.add(5.02, "b", 1, 1)
    transcript.add(5.03, "a", 1)
    transcript.cut(5.09)
    transcript.cut(5.1)
    transcript.cut(5.2)
    assert transcript.lines == [
        "5.00 a has 1 (due 5.00)",
        "5.00 cut: bundle 1 of a[0,1) (due -)",
        "5.02 b has 1, 1 (due 5.10)",
        "5.03 a has 1 (due 5.10)",
        "5.09 cut: - (due 5.10)",
        "5.10 cut: bundle 2 of b[0,2) a[1,2) (due -)",
        "5.20 cut: - (due -)",
    ]


def test_frames_without_a_waiting_acknowledgement_wait_a_second_unless_others_are_cut() -> None:
    transcript = Transcript()
    transcript.add(5.0, "a", 1, stored=False)
    transcript.add(5.5, "b", 1, stored=False)
    transcript.cut(5.99)
    transcript.cut(6.0)
    transcript.add(6.3, "a", 1, stored=False)
    transcript.add(6.35, "b", 1)
    transcript.cut(6.35)
    assert transcript.lines == [
        "5.00 a has 1 (due 6.00)",
        "5.50 b has 1 (due 6.00)",
        "5.99 cut: - (due 6.00)",
        "6.00 cut: bundle 1 of a[0,1) b[0,1) (due -)",
        "6.30 a has 1 (due 7.30)",
        "6.35 b has 1 (due 6.35)",
        "6.35 cut: bundle 2 of a[1,2) b[1,2) (due -)",
    ]


def test_in_haste_nothing_waits() -> None:
    transcript = Transcript()
    transcript.add(5.0, "a", 1, stored=False)
    transcript.cutter.hurry()
    transcript.cut(5.0)
    transcript.add(5.01, "a", 1, stored=False)
    assert transcript.lines == [
        "5.00 a has 1 (due 6.00)",
        "5.00 cut: bundle 1 of a[0,1) (due -)",
        "5.01 a has 1 (due 6.01)",
    ]


def test_a_full_bundle_does_not_wait_and_only_two_are_under_way() -> None:
    transcript = Transcript()
    transcript.add(5.0, "a", 1)
    transcript.cut(5.0)
    for segment in "bcde":
        transcript.add(5.01, segment, 15, 15)
    transcript.cut(5.01)
    transcript.cutter.put_done()
    transcript.cut(5.02)
    transcript.cut(5.12)
    assert transcript.lines[2:] == [
        "5.01 b has 15, 15 (due 5.10)",
        "5.01 c has 15, 15 (due 5.10)",
        "5.01 d has 15, 15 (due 5.01)",
        "5.01 e has 15, 15 (due 5.01)",
        "5.01 cut: bundle 2 of b[0,2) c[0,2) d[0,1) (due -)",
        "5.02 cut: - (due 5.11)",
        "5.12 cut: bundle 3 of d[1,2) e[0,2) (due -)",
    ]


def test_many_bytes_of_one_segment_become_log_objects_and_later_frames_wait_for_the_reference() -> None:
    transcript = Transcript()
    transcript.add(5.0, "a", 30, 30, 30, 30, 30)
    transcript.add(5.0, "b", 1)
    transcript.cut(5.0)
    transcript.add(5.01, "a", 5)
    transcript.cut(5.11)
    transcript.log_written(1)
    transcript.log_written(0)
    transcript.cut(5.12)
    assert transcript.lines == [
        "5.00 a has 30, 30, 30, 30, 30 (due 5.00)",
        "5.00 b has 1 (due 5.00)",
        "5.00 cut: log a[0,2), log a[2,4), bundle 1 of b[0,1) (due -)",
        "5.01 a has 5 (due -)",
        "5.11 cut: - (due -)",
        "log a[2,4) is written (due -)",
        "log a[0,2) is written (due 5.10)",
        "5.12 cut: bundle 2 of ref a[0,2) ref a[2,4) a[4,6) (due -)",
    ]
    assert transcript.cutter.pending_bytes == 0


def test_a_segment_waits_for_a_free_log_object_and_others_do_not() -> None:
    transcript = Transcript()
    for segment in "abc":
        transcript.add(5.0, segment, 50)
    transcript.cut(5.0)
    transcript.add(5.2, "d", 1)
    transcript.cut(5.2)
    transcript.log_written(0)
    transcript.cut(5.3)
    assert transcript.lines[3:] == [
        "5.00 cut: log a[0,1), log b[0,1) (due -)",
        "5.20 d has 1 (due 5.20)",
        "5.20 cut: bundle 1 of d[0,1) (due -)",
        "log a[0,1) is written (due 5.30)",
        "5.30 cut: log c[0,1), bundle 2 of ref a[0,1) (due -)",
    ]


def test_a_segment_that_is_dropped_leaves_nothing_behind() -> None:
    transcript = Transcript()
    transcript.add(5.0, "a", 50, 5)
    transcript.cut(5.0)
    transcript.add(5.1, "b", 3)
    transcript.cutter.drop(ReplicaKey(7, 0))
    transcript.cutter.drop(ReplicaKey(7, 1))
    transcript.log_written(0)
    assert transcript.lines[-1] == "log a[0,2) is written (due -)"
    assert transcript.cutter.pending_bytes == 0


def test_producers_are_in_the_runs_that_are_cut() -> None:
    transcript = Transcript()
    transcript.add(5.0, "c", 4, 5)
    (action,) = transcript.cutter.cut(5.0)
    assert isinstance(action, PutBundle)
    (run,) = action.runs
    assert (run.key, run.length, run.frames) == (
        ReplicaKey(7, 2),
        9,
        (BundledFrame(1, 0, 0, 1), BundledFrame(1, 0, 1, 1)),
    )
