"""Replay one seed, or play many: ``python -m tests.sim --seed 7`` or ``python -m tests.sim --seeds 0-999``."""

import argparse
import sys
import time

from tests.sim.world import Report, simulate

TAIL_LINES = 60


def _print_failure(report: Report, tail: int) -> None:
    print(f"seed {report.seed} FAILED, the last {tail} events:")
    for line in report.log[-tail:]:
        print("  " + line)
    for violation in report.violations[:20]:
        print(f"  !! {violation}")
    print(f"replay with: make sim SEED={report.seed}")


def main() -> int:
    """0 if every seed kept every promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--seed", type=int, help="replay one seed and print its whole event log")
    chosen.add_argument("--seeds", help="play a range of seeds, such as 0-999")
    parser.add_argument("--keep-going", action="store_true", help="play on after a seed failed")
    parser.add_argument("--digest", action="store_true", help="print the digest of the event log only")
    args = parser.parse_args()
    if args.seed is not None:
        report = simulate(args.seed)
        if args.digest:
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
    first, _, last = args.seeds.partition("-")
    failed: list[int] = []
    began = time.monotonic()
    for seed in range(int(first), int(last or first) + 1):
        report = simulate(seed)
        if not report.ok:
            failed.append(seed)
            _print_failure(report, TAIL_LINES if not args.keep_going else 0)
            if not args.keep_going:
                break
    print(f"{seed - int(first) + 1} seeds in {time.monotonic() - began:.1f} s, failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
