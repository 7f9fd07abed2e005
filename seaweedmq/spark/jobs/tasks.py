"""Runner that executes each part of a job as a Spark job of its own.

Results are known as they arrive, and a part fails alone. A part costs tens of milliseconds. Executors need SeaweedMQ
installed and the storage mounted.
"""

import secrets  # noqa: TID251 - a tag, on a driver
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

T = TypeVar("T")
R = TypeVar("R")

JOBS_MAX = 256
"""Maximum number of jobs at once; the number of Spark's cores plus one is another limit."""


@dataclass(frozen=True, slots=True)
class SparkRun:
    """``storage.jobs.run.Run`` on the executors of a session."""

    spark: SparkSession

    def __call__(self, do: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[T, R]]:
        """Yield each item with its result, in the order of completion; cancels the rest on an error."""
        context = self.spark.sparkContext
        tag = f"seaweedmq-{secrets.token_hex(4)}"

        def one(item: T) -> R:
            context.addJobTag(tag)
            (result,) = context.parallelize([item], 1).map(do).collect()
            found: R = result
            return found

        started: Any = inheritable_thread_target(self.spark)(one)
        with ThreadPoolExecutor(min(JOBS_MAX, context.defaultParallelism + 1), "seaweedmq-job") as pool:
            running: dict[Future[R], T] = {pool.submit(started, item): item for item in items}
            try:
                for done in as_completed(running):
                    yield running[done], done.result()
            finally:
                for future in running:
                    future.cancel()
                if not all(future.done() for future in running):
                    context.cancelJobsWithTag(tag)
