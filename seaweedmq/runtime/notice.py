"""An event of the loop that any thread may set."""

import asyncio


class Notice(asyncio.Event):
    """Made in the loop. Setting it from threads costs one callback for any number of times until that has run."""

    def __init__(self) -> None:
        super().__init__()
        self._loop_of_owner = asyncio.get_running_loop()
        self._under_way = False
        self._muted = False

    def notify(self) -> None:
        """Set it soon. From any thread."""
        if not self._under_way and not self._muted:
            self._under_way = True
            self._loop_of_owner.call_soon_threadsafe(self._arrive)

    def mute(self) -> None:
        """Nobody waits any more, and the loop may be closed soon."""
        self._muted = True

    def _arrive(self) -> None:
        self._under_way = False
        self.set()
