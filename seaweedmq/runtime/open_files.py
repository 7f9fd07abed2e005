"""Shares of the files that this process may open, of which connections, segments and readers each take some.

A broker without a free descriptor can neither write a log file nor accept a connection, and ends. So each use is
limited to a part at the start; what remains serves tables, etcd, other brokers and files that are replaced.
"""

import logging
import resource

log = logging.getLogger(__name__)

PART = 4
"""Connections of either listener and open segments take one part in so many each."""
FEW = 1_000
"""A limit below this number is a warning."""


def files_max() -> int | None:
    """The number of files that this process may open; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def within_open_files(setting: str, wanted: int, limit: int | None, part: int = PART) -> int:
    """Return ``wanted``, or less if that takes more than its part of the ``limit``, and log that.

    Args:
        setting: its name in the settings.
        wanted: its value.
        limit: as :func:`files_max` returns it.
        part: the part of the files that it may take is one in so many.
    """
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
