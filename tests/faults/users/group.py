"""A consumer group whose members are processes, and the records delivered to them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seaweedmq.model.config import BrokerConfig
from tests.faults.users.member import Line, brief
from tests.faults.users.members import Members
from tests.support.group_history import Delivered, GroupHistory, check_group
from tests.support.history import Outcome, Sent, Violation

KEEPALIVE_S = 2.0
"""Seconds until a broker notices that a peer is frozen."""


@dataclass(slots=True, kw_only=True)
class Group(Members):
    session_s: float = BrokerConfig().group_session_timeout_s + KEEPALIVE_S

    def command(self, name: str, path: Path) -> list[str]:
        return ["tests.faults.users.member", self.bootstrap, self.name, name, str(path), *self.topics]

    def take(self, member: str, lines: list[bytes]) -> None:
        for line in map(Line.decode, lines):
            self.delivered[line.topic].append(
                Delivered(
                    member=member,
                    at_ns=line.at_ns,
                    segment=line.segment,
                    offset=line.offset,
                    key=line.key,
                    value=line.brief,
                )
            )

    def check(self, topic: str, sent: Sequence[Sent]) -> list[Violation]:
        """Judge, after everything was delivered. Values of ``sent`` are ``brief``."""
        self.collect()
        return check_group(GroupHistory(list(sent), self.delivered[topic], self.deaths_ns), complete=True)


def acknowledged(sent: Sequence[Sent]) -> set[bytes]:
    """Return the values that must be delivered."""
    return {s.value for s in sent if s.outcome is Outcome.ACKED}


def briefly(sent: Sequence[Sent]) -> list[Sent]:
    """Return the records with values as members write them."""
    return [replace(s, value=brief(s.value)) for s in sent]
