"""Records that wait for redelivery, and the reasons; ``test_member_machine`` has users and handlers in any order."""

from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.member.redelivery import NEVER, KeyOrder

A, B = b"a", b"b"


def test_a_key_is_held_from_its_refusal_to_its_redelivery_and_no_key_holds_nobody_up() -> None:
    order = KeyOrder(one_at_a_time=False)
    assert order.offer(A, 1)
    order.reject(A, 1, due_s=10.0)
    assert not order.offer(A, 5)
    assert order.offer(B, 6)
    assert not order.offer(A, 7)
    assert order.due_s() == 10.0
    assert order.take_due(9.9) == []
    assert order.take_due(10.0) == [1, 5, 7]
    assert order.is_idle
    assert order.offer(A, 8)
    order = KeyOrder(one_at_a_time=True)
    order.reject(None, 1, due_s=3.0)
    order.reject(None, 2, due_s=1.0)
    assert order.offer(None, 5)
    assert order.take_due(2.0) == [2]
    order.drop(None, 1)
    assert order.take_due(9.0) == []
    assert order.is_idle
    order = KeyOrder(one_at_a_time=False)
    order.reject(A, 1, due_s=NEVER)
    assert not order.offer(A, 2)
    assert (order.take_due(1e12), order.due_s()) == ([], NEVER)
    order.drop(A, 1)
    assert order.take_due(0.0) == [2]


def test_one_at_a_time() -> None:
    order = KeyOrder(one_at_a_time=True)
    assert [order.offer(A, n) for n in (1, 2, 3)] == [True, False, False]
    assert order.take_due(0.0) == []
    order.settle(A)
    assert order.take_due(0.0) == [2]
    order.reject(A, 2, due_s=5.0)
    assert order.take_due(4.0) == []
    assert order.take_due(5.0) == [2]
    order.settle(A)
    assert order.take_due(5.0) == [3]
    assert not order.is_idle
    order.settle(A)
    assert order.is_idle


@given(
    refusals=st.lists(st.tuples(st.sampled_from([A, B, None]), st.integers(0, 9)), max_size=40), room=st.integers(1, 3)
)
def test_what_is_due_goes_out_whatever_else_of_its_key_waits(
    refusals: list[tuple[bytes | None, int]], room: int
) -> None:
    """A user that rejects in any order and has room for a few records, each checked once more when taken."""
    order = KeyOrder(one_at_a_time=False)
    keys = [key for key, _ in refusals]
    for offset, (key, due_s) in enumerate(refusals):
        order.reject(key, offset, due_s)
    out: list[int] = []
    for now in range(10):
        while taken := order.take_due(now):
            for offset in taken[room:]:
                order.reject(keys[offset], offset, now)
            gone = [offset for offset in taken[:room] if order.offer(keys[offset], offset)]
            assert gone == taken[:room], "otherwise the same record is taken in an endless loop"
            out += gone
    assert sorted(out) == list(range(len(keys)))
    for key in (A, B):
        mine = [offset for offset in out if keys[offset] == key]
        assert mine == sorted(mine)
