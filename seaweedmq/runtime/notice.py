"""An event of the loop that any thread may set."""

import asyncio


class Notice(asyncio.Event):
    """An event that is created in the loop. Any number of calls from threads costs one callback until that has run."""

    def __init__(self) -> None:
        super().__init__()
        self._loop_of_owner = asyncio.get_running_loop()
        self._under_way = False
        self._muted = False

    def notify(self) -> None:
        """Set the event soon, from any thread."""
        if not self._under_way and not self._muted:
            self._under_way = True
            self._loop_of_owner.call_soon_threadsafe(self._arrive)

    def mute(self) -> None:
        """Ignore later calls of :meth:`notify`: no task waits, and the loop may soon be closed."""
        self._muted = True

    def _arrive(self) -> None:
        self._under_way = False
        self.set()
