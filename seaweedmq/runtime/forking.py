"""Objects that a child process made by ``fork`` inherits and must not destroy.

A connection, an event loop and the like have threads and descriptors that work for the parent. Their destructors wait
for those threads, or end what the parent still uses; the interpreter would call them at the latest when the child
exits.
"""

import ctypes
import os
import weakref

_kept: "weakref.WeakSet[object]" = weakref.WeakSet()


def leave_alone_in_children(thing: object) -> None:
    """Have no child destroy ``thing``, or anything that it refers to at the moment of the fork."""
    _kept.add(thing)


def inherited(owner: int) -> str:
    """Return why a client of the process ``owner`` does not work in this one."""
    return (
        f"this client was made by process {owner} and cannot be used in its child {os.getpid()}, nor can another: "
        "connect in children only, or start processes with spawn"
    )


def _after_fork() -> None:
    for thing in list(_kept):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))  # a reference that is never dropped
    _kept.clear()


os.register_at_fork(after_in_child=_after_fork)
