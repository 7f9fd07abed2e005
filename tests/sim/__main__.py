"""Command that replays one seed or plays many.

``python -m tests.sim --seed 7`` replays one seed, ``python -m tests.sim --seeds 0-9999`` plays many.

``--find-mutants`` searches for the first seed that catches each mutant, for CAUGHT_BY of ``test_simulation``.
``--theme namesakes`` plays only the seeds with this theme, which finds a mutant of the theme's subject in seconds.
``--themes`` lists the themes.
"""

import argparse
import signal
import sys
from collections.abc import Sequence

from tests.sim.campaign import play_all
from tests.sim.catching import find_mutants
from tests.sim.themes.every import THEMES, theme_of, told_themes
from tests.sim.workers import temporary_folder
from tests.sim.world import simulate


def _replay(seed: int, *, only_digest: bool) -> int:
    with temporary_folder():
        report = simulate(seed)
    if only_digest:
        print(report.digest)
        return 0
    print("\n".join(report.log))
    for violation in report.violations:
        print(f"!! {violation}")
    print(
        f"seed {report.seed}: {'ok' if report.ok else 'FAILED'}, theme {theme_of(seed) or 'none'}, "
        f"{report.virtual_s:.1f} virtual s, "
        f"{report.steps} steps, {report.acked} records sent, {report.polled} read, digest {report.digest[:16]}"
    )
    return 0 if report.ok else 1


def _of_theme(seeds: Sequence[int], theme: str | None) -> Sequence[int]:
    return seeds if theme is None else [seed for seed in seeds if theme_of(seed) == theme]


def main() -> int:
    """Return 0 if every seed kept every promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--seed", type=int, help="replay one seed and print its whole event log")
    chosen.add_argument("--seeds", help="play a range of seeds, such as 0-999")
    chosen.add_argument("--themes", action="store_true", help="list the themes: what some seeds dwell on")
    chosen.add_argument("--find-mutants", nargs="*", metavar="NAME", help="of these broken variants, or of all")
    parser.add_argument("--theme", choices=THEMES, metavar="NAME", help="play the seeds of this theme only")
    parser.add_argument("--until", type=int, default=500, help="with --find-mutants: the seeds below this")
    parser.add_argument("--processes", type=int, default=1, help="play so many seeds at a time")
    parser.add_argument("--keep-going", action="store_true", help="play on after a seed failed")
    parser.add_argument("--digest", action="store_true", help="print the digest of the event log only")
    args = parser.parse_args()
    if args.theme is not None and args.seeds is None and args.find_mutants is None:
        parser.error("--theme chooses among many seeds: give --seeds or --find-mutants")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exit normally, so that temporary files are removed
    if args.themes:
        print(told_themes())
        return 0
    if args.find_mutants is not None:
        return find_mutants(args.find_mutants, _of_theme(range(args.until), args.theme), args.processes)
    if args.seed is not None:
        return _replay(args.seed, only_digest=args.digest)
    first, _, last = args.seeds.partition("-")
    seeds = _of_theme(range(int(first), int(last or first) + 1), args.theme)
    return play_all(seeds, args.processes, keep_going=args.keep_going)


if __name__ == "__main__":
    sys.exit(main())
