"""Child process that converts log files to Parquet, merges tables, and updates Delta logs.

It is started as ``python -m seaweedmq.storage.tables.worker``. It reads one JSON request per line from stdin and writes
one JSON reply per line to stdout, until EOF, so it always ends with its parent. A separate process has its own GIL,
memory and low priority, so the broker's event loop is not delayed.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pyarrow as pa

from seaweedmq.codec.state.metadata import topic_from_json
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.place import Place
from seaweedmq.storage.places import parse_place
from seaweedmq.storage.store.marker import RootGuard, guarded
from seaweedmq.storage.tables.compact import compact_tables
from seaweedmq.storage.tables.delta.updater import DeltaLogs
from seaweedmq.storage.tables.files import convert_files
from seaweedmq.storage.tables.protocol import CONVERT, RECONCILE, Answer, encode_answer, encode_error, file_of

NICENESS = 10


class Worker:
    """A server of requests that caches the state of Delta logs between them."""

    def __init__(self) -> None:
        self._logs = DeltaLogs()
        self._guards: dict[tuple[DirectoryPlace, str | None], RootGuard] = {}

    def answer(self, line: bytes) -> bytes:
        """Execute a request and return the line of the reply."""
        request = json.loads(line)
        place, topic = parse_place(request["root"]), topic_from_json(request["topic"].encode())
        tables: list[SegmentFile] = []
        guard = self._guard(place, request["cluster_id"])
        try:
            if request["kind"] != RECONCILE:
                with guard():
                    tables = _written(place, topic, request)
        except SeaweedMQError as e:
            return encode_error(e)
        try:
            grace_s, confirmed_us = request["table_grace_s"], request["confirmed_us"]
            with guard():
                self._logs.reconcile(place, topic, grace_s=grace_s, confirmed_us=confirmed_us)
        except SeaweedMQError as e:
            return encode_answer(Answer(tables, str(e)))
        return encode_answer(Answer(tables, None))

    def _guard(self, place: Place, cluster_id: str | None) -> Callable[[], AbstractContextManager[None]]:
        """Return the guard of a root; a worker serves one broker, so there is one. Only a mount can disappear."""
        if not isinstance(place, DirectoryPlace):
            return nullcontext
        guard = self._guards.setdefault((place, cluster_id), RootGuard(place, cluster_id))
        return partial(guarded, guard)


def _written(place: Place, topic: Topic, request: Mapping[str, Any]) -> list[SegmentFile]:
    """Return the tables that a request to convert or to compact has written."""
    if request["kind"] == CONVERT:
        logs = [file_of(fields) for fields in request["logs"]]
        return convert_files(place, topic, logs, request["end_offset"], request["row_group_bytes"])
    merged = [file_of(fields) for fields in request["tables"]]
    return compact_tables(place, topic, merged, request["row_group_bytes"], request["low_watermark"])


def main() -> None:
    """Serve requests until EOF."""
    # Ctrl-C reaches the whole process group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    pa.set_cpu_count(1)
    # Replies go to the real stdout; the output of libraries must not mix with them.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        worker = Worker()
        for line in sys.stdin.buffer:
            answers.write(worker.answer(line))
            answers.flush()
            pa.default_memory_pool().release_unused()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        # The parent has ended and reads no reply.
        os._exit(0)
