"""Replay one seed, or play many: ``python -m tests.sim --seed 7`` or ``python -m tests.sim --seeds 0-9999``."""

import argparse
import sys

from tests.sim.campaign import play_all
from tests.sim.world import simulate


def _replay(seed: int, *, only_digest: bool) -> int:
    report = simulate(seed)
    if only_digest:
        print(report.digest)
        return 0
    print("\n".join(report.log))
    for violation in report.violations:
        print(f"!! {violation}")
    print(
        f"seed {report.seed}: {'ok' if report.ok else 'FAILED'}, {report.virtual_s:.1f} virtual s, "
        f"{report.steps} steps, {report.acked} records sent, {report.polled} read, digest {report.digest[:16]}"
    )
    return 0 if report.ok else 1


def main() -> int:
    """0 if every seed kept every promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--seed", type=int, help="replay one seed and print its whole event log")
    chosen.add_argument("--seeds", help="play a range of seeds, such as 0-999")
    parser.add_argument("--processes", type=int, default=1, help="play so many seeds at a time")
    parser.add_argument("--keep-going", action="store_true", help="play on after a seed failed")
    parser.add_argument("--digest", action="store_true", help="print the digest of the event log only")
    args = parser.parse_args()
    if args.seed is not None:
        return _replay(args.seed, only_digest=args.digest)
    first, _, last = args.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    return play_all(seeds, args.processes, keep_going=args.keep_going)


if __name__ == "__main__":
    sys.exit(main())
