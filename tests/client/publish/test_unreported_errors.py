"""Selection of the publish errors that a publisher still has to report."""

import weakref
from dataclasses import dataclass

from seaweedmq.client.publish.unreported_errors import KEPT_MAX, KEPT_ROWS_MAX, UnreportedErrors
from seaweedmq.errors import InvalidArgument, SeaweedMQError


@dataclass
class Work:
    error: SeaweedMQError | None
    told: bool = False
    count: int = 1

    @property
    def is_reported(self) -> bool:
        return self.told

    def first_error(self) -> SeaweedMQError | None:
        return self.error

    def unreported_error(self) -> SeaweedMQError | None:
        return None if self.told else self.error


def failed(number: int = 0, count: int = 1) -> Work:
    return Work(InvalidArgument(str(number)), count=count)


def remembered(*works: Work) -> UnreportedErrors:
    failures = UnreportedErrors()
    for work in works:
        failures.add(work)
    return failures


def test_a_flush_tells_of_the_first_failure_and_a_close_of_the_first_that_nobody_was_told_of() -> None:
    works = [Work(None), failed(1), failed(2)]
    failures = remembered(*works)
    works[1].told = True
    assert failures.take() is works[1].error
    assert failures.take() is None
    assert failures.first_unreported() is None
    works = [failed(1), failed(2)]
    failures = remembered(*works)
    assert failures.first_unreported() is works[0].error
    works[0].told = True
    assert failures.first_unreported() is works[1].error
    works[1].told = True
    assert failures.first_unreported() is None


def test_of_more_failures_or_rows_than_are_remembered_a_close_tells_in_any_case() -> None:
    works = [failed(n) for n in range(KEPT_MAX + 1)]
    failures = remembered(*works)
    for work in works:
        work.told = True
    assert failures.first_unreported() is works[-1].error
    failures = UnreportedErrors()
    works = [failed(n, KEPT_ROWS_MAX // 2) for n in range(3)]
    for work in works:
        failures.add(work)
        assert failures.first_unreported() is works[0].error
    for work in works:
        work.told = True
    assert failures.first_unreported() is works[-1].error


def test_what_somebody_was_told_of_is_neither_kept_nor_told_again_however_many_there_were() -> None:
    told, other = failed(1), failed(2)
    failures = remembered(told)
    told.told = True
    gone = weakref.ref(told)
    del told
    failures.add(other)
    assert gone() is None
    assert failures.first_unreported() is other.error
    failures = UnreportedErrors()
    for _ in range(3 * KEPT_MAX):
        work = failed()
        failures.add(work)
        work.told = True
    assert failures.first_unreported() is None
