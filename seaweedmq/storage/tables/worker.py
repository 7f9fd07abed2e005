"""The child process that converts log files to Parquet: ``python -m seaweedmq.storage.tables.worker``.

One JSON request a line on stdin, one JSON answer a line on stdout, until EOF: so it ends with its parent, however that
ends. A process of its own has its own GIL and memory and a low priority; the broker's event loop notices nothing.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow as pa

from seaweedmq.codec.metadata import topic_from_json
from seaweedmq.errors import SeaweedMQError
from seaweedmq.storage.tables.files import convert_files
from seaweedmq.storage.tables.protocol import file_fields, file_of

NICENESS = 10


def answer(line: bytes) -> bytes:
    """Do what a request says; return the line to answer."""
    request = json.loads(line)
    try:
        tables = convert_files(
            Path(request["root"]),
            topic_from_json(request["topic"].encode()),
            [file_of(fields) for fields in request["logs"]],
            request["end_offset"],
            request["row_group_bytes"],
        )
    except SeaweedMQError as e:
        return json.dumps({"error": e.code, "message": str(e)}).encode() + b"\n"
    return json.dumps({"tables": [file_fields(f) for f in tables]}).encode() + b"\n"


def main() -> None:
    """Serve requests until EOF."""
    # Ctrl-C reaches the whole process group; the parent decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    pa.set_cpu_count(1)
    # Answers go to the real stdout; whatever a library prints must not come between them.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        for line in sys.stdin.buffer:
            answers.write(answer(line))
            answers.flush()
            pa.default_memory_pool().release_unused()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        # The parent is gone and wants no answer.
        os._exit(0)
