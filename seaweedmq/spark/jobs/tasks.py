"""Parts of a job on Spark, each a Spark job of its own: what is done is known as it comes, and what fails fails alone.

Tens of milliseconds a part, on executors that have SeaweedMQ installed and the storage mounted.
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
"""At the same time, and no more than Spark has cores, and one that waits."""


@dataclass(frozen=True, slots=True)
class SparkRun:
    """``storage.jobs.run.Run`` on the executors of a session."""

    spark: SparkSession

    def __call__(self, do: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[T, R]]:
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
