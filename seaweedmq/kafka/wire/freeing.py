"""Memory of large requests is freed in turns: to free the objects of 100,000 elements at once takes some 50 ms."""

from typing import Any, Final

from seaweedmq.kafka.wire.encoding import arrays_of
from seaweedmq.runtime.turns import Turn

ELEMENTS_A_STEP: Final = 50


async def free_message(message: Any, turn: Turn) -> None:
    """Empty the arrays of a decoded message that is not used any more."""
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
    """Empty a list or a dict."""
    while items:
        if isinstance(items, list):
            del items[-ELEMENTS_A_STEP:]
        else:
            for _ in range(min(ELEMENTS_A_STEP, len(items))):
                items.popitem()
        await turn.pause()
