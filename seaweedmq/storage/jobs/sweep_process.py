"""Process that sweeps the payloads of one topic: ``python -m seaweedmq.storage.jobs.sweep_process ROOT TOPIC NOW_US``.

A broker starts it once a day for a topic with payloads: reading the references of all tables takes long, and would
delay the broker's event loop. It prints the number of deleted payloads, or ends with status 1 and the error on stderr.
"""

import os
import signal
import sys
from pathlib import Path

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.jobs.payloads import sweep_payloads

NICENESS = 10


def main(root: str, topic: str, now_us: str) -> int:
    """Sweep, and return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the broker ends this process.
    os.nice(NICENESS)
    try:
        found = sweep_payloads(DirectoryPlace(Path(root)), TopicName.parse(topic), now_us=int(now_us))
    except SeaweedMQError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{len(found.deleted)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
