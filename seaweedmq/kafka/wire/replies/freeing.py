"""Deallocation of large requests and replies in turns of the event loop.

The objects of 100,000 elements take about 50 ms to free, and the end of the last reference would free all at once.
"""

from typing import Any, Final

from seaweedmq.kafka.wire.encoding import arrays_of
from seaweedmq.runtime.turns import Turn

ELEMENTS_A_STEP: Final = 50


async def free_message(message: Any, turn: Turn) -> None:
    """Empty the arrays of a decoded message that is no longer used."""
    kind: Any = type(message)
    for name, has_more in arrays_of(kind):
        elements = getattr(message, name, None)
        if not isinstance(elements, list):
            continue
        if has_more:
            for element in elements:
                await free_message(element, turn)
        await free(elements, turn)


async def free(items: list[Any] | dict[Any, Any], turn: Turn) -> None:
    """Empty a list or a dict in steps."""
    while items:
        if isinstance(items, list):
            del items[-ELEMENTS_A_STEP:]
        else:
            for _ in range(min(ELEMENTS_A_STEP, len(items))):
                items.popitem()
        await turn.pause()
