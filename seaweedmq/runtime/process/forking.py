"""Protection of objects that a forked child process inherits and must not destroy.

A connection or an event loop has threads and descriptors that work for the parent. Its destructor waits for those
threads, or closes what the parent still uses. The interpreter would call it when the child exits, at the latest.
"""

import ctypes
import os
import weakref

_kept: "weakref.WeakSet[object]" = weakref.WeakSet()


def leave_alone_in_children(thing: object) -> None:
    """Prevent children from destroying ``thing``, or anything that it refers to at the moment of the fork."""
    _kept.add(thing)


def inherited(owner: int) -> str:
    """Return the reason why a client of the process ``owner`` does not work in this one."""
    return (
        f"this client was made by process {owner} and cannot be used in its child {os.getpid()}, nor can a new one: "
        "connect only in children, or start processes with spawn"
    )


def _after_fork() -> None:
    for thing in list(_kept):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))  # a reference that is never dropped
    _kept.clear()


os.register_at_fork(after_in_child=_after_fork)
