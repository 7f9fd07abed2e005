"""Command that injects faults into a real cluster: ``python -m tests.faults --minutes 10 --seed 1 [--only kill_leader
...]``.

Every episode has publishers and subscribers on three topics, native or Kafka clients or both, during one fault, or two
or three together. The exit status is 1 if acknowledged data was lost, duplicated or reordered, or any other promise
broken.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from seaweedmq.errors import SeaweedMQError
from tests.faults.episode import Outcome, play, possible, stage
from tests.faults.faults import ALONE, FAULTS, NEEDS_CLOCKS, NEEDS_LIMITED_STORAGE, NEEDS_MEMBERS, NEEDS_MOUNT
from tests.faults.machines.network import Unsupported
from tests.faults.testbed import Fault
from tests.faults.users.kafka_workload import PLANS as KAFKA_PLANS
from tests.faults.users.kafka_workload import RECORDS_PER_S as KAFKA_RECORDS_PER_S
from tests.faults.users.workload import ALL_PLANS, RECORDS_PER_S
from tests.support.history import Violation

EPISODES_PER_CLUSTER = 8
MEMBERS = 3
"""Number of members of the group, in episodes with one."""
OWN_STORAGE_MIB = 512
USERS = ("native", "kafka", "both")
LIMITS = ("mount", "quota")
"""Kinds of storage that can be filled."""
LEASE_TTLS_S = (1.5, 2.0, 3.0)
CLOCKS_SHARE = 0.3
"""Share of clusters whose wall clocks can be stepped."""
SHOWN_MAX = 5
"""Violations of each rule that are printed."""
VIOLATIONS = "violations.txt"
"""File with all violations, beside the logs."""


def _limit(rng: random.Random, wanted: Collection[Fault]) -> str | None:
    """Return the kind of storage: one of ``LIMITS``, or None for a plain directory."""
    if any(fault in NEEDS_MOUNT for fault in wanted):
        return "mount"
    if any(fault in NEEDS_LIMITED_STORAGE for fault in wanted):
        return rng.choice(LIMITS)
    return rng.choice((*LIMITS, "mount", None, None))


def _choose(rng: random.Random, names: list[str]) -> list[str]:
    """Choose one fault, or several that may strike together."""
    together = [name for name in names if FAULTS[name] not in ALONE]
    if rng.random() < 0.5 or len(together) < 2:
        return [rng.choice(names)]
    return rng.sample(together, min(len(together), rng.choice((2, 2, 3))))


async def _hurt(args: argparse.Namespace) -> list[Outcome]:
    rng = random.Random(args.seed)
    wanted = {FAULTS[name] for name in args.only}
    end_s = time.monotonic() + args.minutes * 60
    outcomes: list[Outcome] = []
    episode = 0
    while time.monotonic() < end_s:
        limit = _limit(rng, wanted)
        ttl_s = args.lease_ttl or rng.choice(LEASE_TTLS_S)
        directory = Path(tempfile.mkdtemp(prefix="seaweedmq-faults-"))
        broken = False
        try:
            async with stage(
                directory,
                brokers=rng.choice((3, 3, 4)),
                lease_ttl_s=ttl_s,
                own_storage_mib=OWN_STORAGE_MIB if limit == "mount" else 0,
                quota=limit == "quota",
                clocks=bool(wanted & {*NEEDS_CLOCKS}) or (not wanted and rng.random() < CLOCKS_SHARE),
                loopback=rng.random() < 0.2,
            ) as cluster:
                for _ in range(EPISODES_PER_CLUSTER):
                    episode += 1
                    users = args.users or rng.choice(USERS)
                    members = MEMBERS if wanted & {*NEEDS_MEMBERS} else rng.choice((0, MEMBERS))
                    natives, kafka = users != "kafka", users != "native"
                    crowd = {"members": members if natives else 0, "kafka_members": MEMBERS if kafka else 0}
                    names = possible(cluster, natives=natives, kafka=kafka, **crowd)
                    chosen = [n for n in names if not wanted or n in args.only]
                    faults = _choose(rng, chosen)
                    outcome = await play(
                        cluster,
                        faults,
                        seed=f"{args.seed}-{episode}",
                        records_per_s=args.records_per_s,
                        plans=ALL_PLANS if natives else (),
                        kafka_plans=KAFKA_PLANS if kafka else (),
                        kafka_records_per_s=args.kafka_records_per_s,
                        **crowd,
                        say=_say(args.verbose),
                    )
                    outcomes.append(outcome)
                    print(f"{episode:4} ttl {ttl_s:g} {outcome.line()}", flush=True)
                    for violation in _some(outcome.violations):
                        print(f"     !! {violation}", flush=True)
                    if outcome.violations:
                        broken = True
                        told = "".join(f"{violation}\n" for violation in outcome.violations)
                        (directory / VIOLATIONS).write_text(told)
                        print(f"     logs stay in {directory}", flush=True)
                        break
                    if time.monotonic() >= end_s:
                        break
        except Unsupported as why:
            print(f"skipped: {why}", flush=True)
            if wanted:
                return outcomes
        except SeaweedMQError as error:
            broken = True
            outcomes.append(Outcome(faults=("start",), seed=f"{args.seed}-{episode}"))
            outcomes[-1].violations.append(Violation("stuck", f"the cluster does not start: {error}"))
            print(f"{episode:4} ttl {ttl_s:g} {outcomes[-1].line()}\n     {error}", flush=True)
        if not broken and not args.keep:
            shutil.rmtree(directory, ignore_errors=True)
    return outcomes


def _some(violations: Sequence[Violation]) -> list[Violation]:
    """Return the first violations of each rule: every reader meets a record that is stored twice."""
    rules = dict.fromkeys(v.rule for v in violations)
    return [v for rule in rules for v in [v for v in violations if v.rule == rule][:SHOWN_MAX]]


def _say(verbose: bool) -> Callable[[str], None]:
    began = time.monotonic()
    return lambda text: print(f"     {time.monotonic() - began:6.2f} {text}", flush=True) if verbose else None


def main() -> int:
    """Return 0 if every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=sorted(FAULTS), nargs="+", default=[], metavar="FAULT", help="only these")
    parser.add_argument("--users", choices=USERS, help="only these; otherwise some in each episode")
    parser.add_argument("--lease-ttl", type=float, help="seconds; otherwise one of several")
    parser.add_argument("--records-per-s", type=float, default=RECORDS_PER_S, help="of each of three topics")
    parser.add_argument("--kafka-records-per-s", type=float, default=KAFKA_RECORDS_PER_S, help="as above, by Kafka's")
    parser.add_argument("--keep", action="store_true", help="leave the files and logs of every cluster in /tmp")
    parser.add_argument("--verbose", action="store_true", help="print each fault as it strikes")
    args = parser.parse_args()
    outcomes = asyncio.run(_hurt(args))
    print(
        f"{len(outcomes)} episodes: {sum(o.acked for o in outcomes)} records acknowledged, "
        f"{sum(o.count('lost') for o in outcomes)} lost, {sum(o.count('duplicated') for o in outcomes)} duplicated, "
        f"{sum(o.count('reordered', 'offsets fall') for o in outcomes)} reordered, "
        f"{sum(len(o.violations) for o in outcomes)} violations in all, "
        f"{sum(o.kafka_acked for o in outcomes)} of the records by Kafka's clients, whose longest wait to commit was "
        f"{max((o.commit_wait_s for o in outcomes), default=0.0):.2f} s, "
        f"longest gap between acknowledgements {max((o.gap_s for o in outcomes), default=0.0):.2f} s"
    )
    return 1 if any(o.violations for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
