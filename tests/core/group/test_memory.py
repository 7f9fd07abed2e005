"""Groups are counted at their cost, and nothing of a group remains counted once it has ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.group.events import Outcome
from seaweedmq.core.group.memory import COMMITTED_BYTES, DELIVERY_BYTES, GroupMemory, GroupSize
from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.group_record import CommittedOffset, GroupRecord, MemberRecord, SegmentOwner
from seaweedmq.model.messages.groups import GroupCommit, Position
from seaweedmq.model.messages.subscribe import EARLIEST


def record(members: int = 0, owners: int = 0) -> GroupRecord:
    return GroupRecord(
        topic_uid=1,
        start=EARLIEST,
        horizon=0,
        generation=0,
        members={f"m{n}": MemberRecord(incarnation=n, client="test") for n in range(members)},
        owners={n: SegmentOwner("m0", 1) for n in range(owners)},
        crashes={},
    )


def committed(deliveries: int) -> CommittedOffset:
    return CommittedOffset(offset=0, deliveries=dict.fromkeys(range(deliveries), 1), at_us=0)


def commit(*deliveries: int) -> GroupCommit:
    return GroupCommit(
        1,
        tuple(
            Position(segment=number, generation=1, offset=0, deliveries=dict.fromkeys(range(count), 1))
            for number, count in enumerate(deliveries)
        ),
    )


RECORDS = st.builds(record, st.integers(0, 5), st.integers(0, 5))
COMMITTED = st.dictionaries(st.integers(0, 4), st.none() | st.builds(committed, st.integers(0, 5)))
CHANGES = st.lists(st.builds(Outcome, record=st.none() | RECORDS, committed=COMMITTED))


@given(RECORDS, CHANGES)
def test_the_count_is_that_of_a_group_loaded_with_all_that_was_written(
    first: GroupRecord, changes: list[Outcome]
) -> None:
    memory = GroupMemory(0)
    size = GroupSize(memory, first, {})
    last, kept = first, {}
    for change in changes:
        size.changed(change)
        last, kept = change.record or last, {**kept, **change.committed}
    loaded = GroupMemory(0)
    GroupSize(loaded, last, {segment: one for segment, one in kept.items() if one is not None})
    assert memory.used == loaded.used
    for _ in range(2):
        size.close()
        assert memory.used == 0
    size.changed(Outcome(record=record(3)))
    assert memory.used == 0


def test_at_the_bound_nothing_is_added_and_what_is_there_may_change() -> None:
    memory = GroupMemory(0)
    size = GroupSize(memory, record(1), {0: committed(2)})
    memory.bytes_max = memory.used
    with pytest.raises(ResourceExhausted, match=r"another member is rejected: .* raise memory_bytes_max"):
        size.check_member()
    for more in (commit(3), commit(0, 0)):
        with pytest.raises(ResourceExhausted, match="the commit is rejected"):
            size.check_commit(more)
    for same in (commit(2), commit(1), commit(0)):
        size.check_commit(same)
    memory.bytes_max += COMMITTED_BYTES + DELIVERY_BYTES
    size.check_commit(commit(2, 1))
