"""The search for a fence, as transcripts against a sequence of entries."""

from dataclasses import replace

import pytest

from seaweedmq.core.segment.bundle_fence import (
    CreateFence,
    FenceAction,
    FenceFound,
    FenceSearch,
    ListEntries,
    ReadEntry,
)
from seaweedmq.model.bundle import EntryHeader, EntryKind


def bundle(number: int, *, floor: int = 0, done: int | None = None) -> EntryHeader:
    return EntryHeader(
        kind=EntryKind.BUNDLE,
        number=number,
        floor=floor,
        done=number if done is None else done,
        checkpoint=floor,
        nonce=bytes(16),
        time_us=0,
    )


def fence(number: int) -> EntryHeader:
    return replace(bundle(number, done=0), kind=EntryKind.FENCE)


class Transcript:
    """A search in a store that answers at once; ``before`` runs between two steps."""

    def __init__(self, *entries: EntryHeader) -> None:
        self.entries = {entry.number: entry for entry in entries}
        self.search = FenceSearch()
        self.action: FenceAction = self.search.begin()
        self.lines: list[str] = []

    def step(self) -> bool:
        """Perform the next action; return whether the search continues."""
        match self.action:
            case ListEntries():
                self.lines.append(f"list {sorted(self.entries)}")
                self.action = self.search.listed(set(self.entries))
            case ReadEntry(number):
                entry = self.entries.get(number)
                told = "nothing" if entry is None else "fence" if entry.is_fence else f"bundle, floor {entry.floor}"
                self.lines.append(f"read {number}: {told}")
                self.action = self.search.header_read(number, entry)
            case CreateFence(number):
                is_free = number not in self.entries
                self.lines.append(f"create {number}: {'yes' if is_free else 'exists'}")
                if is_free:
                    self.entries[number] = fence(number)
                self.action = self.search.created(number) if is_free else self.search.exists(number)
            case FenceFound(number, floor, has_bundles):
                self.lines.append(f"fence {number}, floor {floor}{'' if has_bundles else ', no bundles'}")
                return False
        return True

    def until(self, beginning: str) -> None:
        while not self.lines or not self.lines[-1].startswith(beginning):
            assert self.step(), self.lines

    def run(self) -> list[str]:
        while self.step():
            assert len(self.lines) < 50
        return self.lines


def test_the_fence_comes_behind_the_last_bundle() -> None:
    transcript = Transcript(bundle(4, floor=4), bundle(5, floor=4), bundle(6, floor=4))
    assert transcript.run() == [
        "list [4, 5, 6]",
        "read 6: bundle, floor 4",
        "create 7: yes",
        "list [4, 5, 6, 7]",
        "read 7: fence",
        "read 6: bundle, floor 4",
        "fence 7, floor 4",
    ]


def test_the_fence_takes_the_first_free_number_below_bundles_that_overtook_it() -> None:
    transcript = Transcript(bundle(4), bundle(5), bundle(7, done=5), bundle(8, done=5))
    assert transcript.run() == [
        "list [4, 5, 7, 8]",
        "read 8: bundle, floor 0",
        "read 7: bundle, floor 0",
        "read 5: bundle, floor 0",
        "create 6: yes",
        "list [4, 5, 6, 7, 8]",
        "read 8: bundle, floor 0",
        "read 7: bundle, floor 0",
        "read 6: fence",
        "read 5: bundle, floor 0",
        "fence 6, floor 0",
    ]


def test_a_second_leader_finds_the_fence_of_the_first_among_bundles_that_came_late() -> None:
    transcript = Transcript(bundle(5), fence(6), bundle(7, done=5))
    assert transcript.run()[-4:] == [
        "read 7: bundle, floor 0",
        "read 6: fence",
        "read 5: bundle, floor 0",
        "fence 6, floor 0",
    ]
    assert set(transcript.entries) == {5, 6, 7}


def test_a_writer_that_continues_is_overtaken() -> None:
    transcript = Transcript(bundle(5))
    transcript.until("read 5")
    transcript.entries |= {6: bundle(6), 7: bundle(7)}
    assert transcript.run()[2:] == [
        "create 6: exists",
        "read 6: bundle, floor 0",
        "create 7: exists",
        "read 7: bundle, floor 0",
        "create 8: yes",
        "list [5, 6, 7, 8]",
        "read 8: fence",
        "read 7: bundle, floor 0",
        "fence 8, floor 0",
    ]


def test_a_fence_among_deleted_bundles_is_void_and_the_search_begins_again() -> None:
    transcript = Transcript(bundle(5))
    transcript.until("read 5")
    transcript.entries = {90: bundle(90, floor=80), 91: bundle(91, floor=80)}
    assert transcript.run()[2:] == [
        "create 6: yes",
        "list [6, 90, 91]",
        "read 91: bundle, floor 80",
        "create 92: yes",
        "list [6, 90, 91, 92]",
        "read 92: fence",
        "read 91: bundle, floor 80",
        "fence 92, floor 80",
    ]


def test_an_entry_that_is_deleted_before_it_is_read_begins_the_search_again() -> None:
    transcript = Transcript(bundle(5))
    transcript.until("list")
    transcript.entries = {9: bundle(9, floor=9)}
    assert transcript.run()[1:4] == ["read 5: nothing", "list [9]", "read 9: bundle, floor 9"]


def test_a_fence_that_the_first_listing_shows_is_listed_again_since_listings_have_no_order() -> None:
    transcript = Transcript(bundle(5), fence(6))
    assert transcript.run() == [
        "list [5, 6]",
        "read 6: fence",
        "read 5: bundle, floor 0",
        "list [5, 6]",
        "read 6: fence",
        "read 5: bundle, floor 0",
        "fence 6, floor 0",
    ]


def test_what_another_broker_wrote_out_leaves_the_fence_alone() -> None:
    assert Transcript(fence(3), fence(6)).run()[-1] == "fence 6, floor 0, no bundles"


def test_a_broker_that_never_put_anything_is_fenced_at_0() -> None:
    assert Transcript().run()[-1] == "fence 0, floor 0, no bundles"


def test_without_an_answer_the_same_number_is_tried_and_the_own_fence_is_found() -> None:
    transcript = Transcript(bundle(5))
    transcript.until("read 5")
    assert transcript.search.unanswered(6) == CreateFence(6, 0)
    transcript.entries[6] = fence(6)  # the lost request was applied
    assert transcript.run()[-1] == "fence 6, floor 0"


@pytest.mark.parametrize("first", [0, 3, 1_000])
def test_the_requests_do_not_grow_with_the_entries(first: int) -> None:
    entries = [bundle(number, floor=first, done=max(number - 3, 0)) for number in range(first, first + 500)]
    lines = Transcript(*entries).run()
    assert len(lines) <= 15
    assert lines[-1] == f"fence {first + 500}, floor {first}"
