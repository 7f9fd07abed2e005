"""Shares of the files that this process may open, for connections, segments and readers.

A broker without a free descriptor can neither write a log file nor accept a connection, and ends. So the start limits
each use to a share. The rest serves tables, etcd, other brokers and files that are replaced.
"""

import logging
import resource

log = logging.getLogger(__name__)

PART = 4
"""Divisor of the limit: connections of either listener and open segments take one share each."""
FEW = 1_000
"""Lowered setting below which the log line is a warning."""


def files_max() -> int | None:
    """Return the number of files that this process may open; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def within_open_files(setting: str, wanted: int, limit: int | None, part: int = PART) -> int:
    """Return the ``wanted`` value of a setting, or less, which is logged, if it exceeds ``1/part`` of ``limit``."""
    if limit is None or wanted * part <= limit:
        return wanted
    allowed = max(1, limit // part)
    log.log(
        logging.WARNING if allowed < FEW else logging.DEBUG,
        "limited by open files: %s = %d is lowered to %d, since this process may open %d files: raise its limit "
        "(ulimit -Hn, LimitNOFILE) to %d",
        setting,
        wanted,
        allowed,
        limit,
        wanted * part,
    )
    return allowed
