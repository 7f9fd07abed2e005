"""Jobs for the client processes of ``benchmarks.contest``, which import them by name."""

import os
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Event

Piece = Callable[..., dict[str, float]]


def pid_once_ready(ready: Event) -> dict[str, float]:
    ready.set()
    return {"pid": os.getpid()}


def refused() -> dict[str, float]:
    raise ValueError("3 records stored where 4 were published")


def ended() -> dict[str, float]:
    os._exit(3)


def stuck() -> dict[str, float]:
    signal.pause()
    return {}
