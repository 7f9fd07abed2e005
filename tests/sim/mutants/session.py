"""Mutants of membership: leases, registration, placement and forwarded calls; see ``mutants``."""

from collections.abc import Callable
from typing import Any

import pytest

from seaweedmq.broker.groups.member_session import MemberSession
from seaweedmq.broker.leader_forwarder import LeaderForwarder
from seaweedmq.broker.membership import Membership
from seaweedmq.broker.segment.owned import OwnedSegments
from seaweedmq.codec.state.keys import broker_key
from seaweedmq.codec.state.metadata import broker_to_json
from seaweedmq.coordination import limits, session, view
from seaweedmq.coordination.session import Session
from seaweedmq.ports import Put, loop_s


def register_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    """A stopped or drained broker registers under its old id after its lease has ended, and such a registration without
    a lease is never reaped."""

    async def update(session: Any, info: Any) -> None:
        await session._store.transact([], [Put(broker_key(info.id), broker_to_json(info), session.lease)])

    async def announce_draining(membership: Any) -> None:
        membership.draining = True
        if membership.incarnation is not None:
            await membership.incarnation.announce_draining()

    believed = view.read_value

    def read(entry: Any) -> Any:
        lease = entry.lease or 1
        return believed(type(entry)(entry.key, entry.value, entry.create_revision, entry.mod_revision, lease))

    patch.setattr(Session, "update", update)
    patch.setattr(Membership, "announce_draining", announce_draining)
    patch.setattr(limits, "LEASED", ())
    patch.setattr(view, "read_value", read)


def count_leases_by_a_clock_that_stops(patch: pytest.MonkeyPatch) -> None:
    """A lease's clock stops while its machine is suspended."""
    made: Callable[..., None] = Session.__init__

    def init(session: Any, *args: Any, **more: Any) -> None:
        made(session, *args, **more)
        session._clock_s = loop_s

    patch.setattr(Session, "__init__", init)


def leave_a_surplus_segment_unserved(patch: pytest.MonkeyPatch) -> None:
    """A broker at its limit does not open assigned segments."""
    own = OwnedSegments._own

    def within_the_limit(ownership: Any, topic: Any, segment: Any, incarnation: Any) -> None:
        if len(ownership.segments) < ownership._context(incarnation).config.open_segments_max:
            own(ownership, topic, segment, incarnation)

    patch.setattr(OwnedSegments, "_own", within_the_limit)


def pass_calls_to_and_fro(patch: pytest.MonkeyPatch) -> None:
    """A broker that is not the leader forwards a forwarded call again."""
    made: Callable[..., None] = LeaderForwarder.__init__
    patch.setattr(LeaderForwarder, "__init__", lambda forwarding, *args, **_: made(forwarding, *args))


def give_an_address_up_too_soon(patch: pytest.MonkeyPatch) -> None:
    """A returning broker waits for its old address only as long as a lease lives, not the longer time after an etcd
    restart."""
    patch.setattr(session, "ADDRESS_WAIT_EXTRA_S", 0.5)


def wait_for_what_was_never_told(patch: pytest.MonkeyPatch) -> None:
    """A group waits for a member to release a segment although it never sent the assignment."""
    enqueue: Callable[..., Any] = MemberSession.enqueue

    def enqueue_and_forget(session: Any, message: Any) -> dict[int, int]:
        enqueue(session, message)
        return {}

    patch.setattr(MemberSession, "enqueue", enqueue_and_forget)
