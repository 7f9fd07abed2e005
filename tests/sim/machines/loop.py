"""A deterministic asyncio event loop: one thread, no IO, virtual time that jumps to the next timer.

Determinism rests on four rules. Ready callbacks run in the order they were scheduled. Executors run jobs at once and
inline, so that no callback waits for another thread. Tasks and futures hash by their number, so that sets of them (as
in ``TaskGroup``) have the same order in every run. Garbage cycles are not collected while a simulation runs, since
finalizers would run at moments that depend on the interpreter's other work.
"""

import asyncio
import contextvars
import heapq
import itertools
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from enum import Enum
from typing import Any, TypeVar

from seaweedmq.errors import SeaweedMQError

T = TypeVar("T")

OWNER: "contextvars.ContextVar[Owner | None]" = contextvars.ContextVar("sim_owner", default=None)
"""The simulated process that the running code belongs to; None for the simulation itself."""


TICK_S = 1e-9
"""Shortest wait."""

CLOSE_ATTEMPTS = 20
"""Attempts to close one coroutine: each await in nested ``finally`` blocks takes one."""


class OwnerState(Enum):
    RUNNING = "running"
    FROZEN = "frozen"
    """Stopped as by SIGSTOP: due callbacks wait until the process is thawed."""
    DEAD = "dead"
    """Killed as by SIGKILL: no callback runs again, not even a ``finally``."""


class Owner:
    """The process that owns callbacks; it can be frozen, or killed without notice."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = OwnerState.RUNNING
        self.held: deque[SimHandle] = deque()
        """Due callbacks of a frozen process; of a dead one kept so that no finalizer runs."""
        self.suspended_s = 0.0
        """Seconds for which its machine was suspended: its monotonic clock is behind by this time."""
        self.suspended_at: float | None = None

    def __repr__(self) -> str:
        return f"<{self.name} {self.state.value}>"


class SimError(Exception):
    """The simulation itself cannot continue."""


class Deadlock(SimError):
    """A task waits although no event is left."""


class LimitReached(SimError):
    """The run exceeded its steps, its virtual time or its clock reads per step: likely a livelock."""


class SimTask(asyncio.Task[T]):
    """A task that hashes by its number."""

    def __init__(self, coro: Any, *, number: int, owner: Owner | None, **kwargs: Any) -> None:
        self.number = number
        self.owner = owner
        super().__init__(coro, **kwargs)

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[T]):
    """A future that hashes by a number, which it gets only when it is first hashed: few are."""

    number = 0

    def __hash__(self) -> int:
        if not self.number:
            loop = self.get_loop()
            assert isinstance(loop, SimLoop)
            self.number = next(loop.numbers)
        return self.number


class SimHandle(asyncio.TimerHandle):
    """A callback that is due at once or at a time: asyncio's own, without the parts for debug mode."""

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False
        self.is_timer = False
        """Whether the callback waited in the queue of timers, even if it was due at once."""

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None  # type: ignore[assignment]
        self._args = ()


LOOKS_MAX = 100_000
"""Clock reads within one step: virtual time stands still in a step, so that a loop waiting for it never ends."""


class SimLoop(asyncio.BaseEventLoop):
    """Run with ``loop.run_until_complete(main())``; ``loop.time()`` begins at 0 and only timers move it."""

    def __init__(self, *, time_s_max: float = 3_600.0, steps_max: int = 5_000_000) -> None:
        super().__init__()
        self._now_s = 0.0
        self._time_s_max = time_s_max
        self._steps_max = steps_max
        self.numbers = itertools.count(1)
        self._timers: list[tuple[float, int, SimHandle]] = []
        self.thread_latency_s: Callable[[], float] = lambda: 0.0
        """Virtual seconds that a job waits for its thread, and its result for the loop."""
        self._looks = 0
        """Clock reads since the step began."""
        self.spins: list[str] = []
        """Steps that did not end by themselves."""
        self.steps = 0
        """Callbacks run so far: part of the digest, so that any divergence of two runs shows."""
        self.unhandled: list[str] = []
        """Unhandled errors; see ``failures``."""
        self._all_tasks: list[SimTask[Any]] = []
        self._prune_at = 1_000
        self.set_exception_handler(self._note_unhandled)

    # --- the clock and the queue ------------------------------------------------------------------------------------

    def time(self) -> float:
        self._looked()
        owner = OWNER.get()
        return self._now_s - owner.suspended_s if owner is not None else self._now_s

    @property
    def boot_s(self) -> float:
        """Return the clock that keeps running while a machine is suspended."""
        self._looked()
        return self._now_s

    def _looked(self) -> None:
        self._looks += 1
        if self._looks > LOOKS_MAX:
            self._looks = 0
            self.spins.append(f"the time, {self._now_s:.3f} s, was read {LOOKS_MAX} times in one step")
            raise LimitReached(self.spins[-1])

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = SimHandle(when, callback, args, self, context)
        timer.is_timer = True
        owner = timer._context.get(OWNER)
        if owner is not None and owner.suspended_s:
            # The process's clock is a rounded difference: a time in its future must also be in the loop's future.
            is_to_come = when > self._now_s - owner.suspended_s
            when = max(when + owner.suspended_s, self._now_s + TICK_S if is_to_come else 0.0)
        heapq.heappush(self._timers, (when, next(self.numbers), timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        owner = OWNER.get() if context is None else context.get(OWNER)  # its clock counts, not the caller's
        now_s = self._now_s - (owner.suspended_s if owner is not None else 0.0)
        return self.call_at(now_s + delay, callback, *args, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._closed:  # type: ignore[attr-defined]
            raise RuntimeError("Event loop is closed")
        handle = SimHandle(self._now_s, callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def _run_once(self) -> None:
        """Run rounds until the loop is stopped; each round runs the callbacks that were ready when it began."""
        ready: deque[SimHandle] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        while not self._stopping:  # type: ignore[attr-defined]
            if not ready:
                self._jump()
            now_s = self._now_s
            while timers and timers[0][0] <= now_s:
                timer = heapq.heappop(timers)[2]
                if not timer._cancelled:
                    ready.append(timer)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                context = handle._context
                owner = context.get(OWNER)
                if owner is not None and owner.state is not OwnerState.RUNNING:
                    owner.held.append(handle)
                    continue
                self.steps += 1
                self._looks = 0
                try:
                    context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - fails the run: callbacks have no caller
                    self.call_exception_handler({"message": f"in {handle!r}", "exception": error})
            if self.steps > self._steps_max:
                raise LimitReached(f"{self._steps_max} steps at {self._now_s:.3f} s: {self.describe_pending()}")

    def _jump(self) -> None:
        while self._timers and self._timers[0][2]._cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            raise Deadlock(f"nothing will happen after {self._now_s:.3f} s; waiting: {self.describe_pending()}")
        self._now_s = max(self._now_s, self._timers[0][0])
        if self._now_s > self._time_s_max:
            raise LimitReached(f"virtual time passed {self._time_s_max} s; waiting: {self.describe_pending()}")

    def thaw(self, owner: Owner) -> None:
        """Let a frozen owner run again; callbacks that became due meanwhile run first, in order."""
        if owner.state is not OwnerState.FROZEN:
            raise SimError(f"{owner.name} is {owner.state.value}, not frozen")
        owner.state = OwnerState.RUNNING
        self._ready.extend(owner.held)  # type: ignore[attr-defined]
        owner.held.clear()

    def suspend(self, owner: Owner) -> None:
        """Suspend the owner's machine: its callbacks and its monotonic clock stop."""
        owner.state = OwnerState.FROZEN
        owner.suspended_at = self._now_s

    def resume(self, owner: Owner) -> None:
        """Resume the owner's machine. Its timers keep their remaining time; other processes' clocks have advanced."""
        if owner.suspended_at is None:
            raise SimError(f"{owner.name} is not suspended")
        gone_s = self._now_s - owner.suspended_at
        owner.suspended_s += gone_s
        rang = [h for h in owner.held if h.is_timer]
        owner.held = deque(h for h in owner.held if not h.is_timer)
        timers = [
            (when + gone_s if timer._context.get(OWNER) is owner else when, number, timer)  # type: ignore[attr-defined]
            for when, number, timer in self._timers
        ]
        timers += [(timer.when() + owner.suspended_s, next(self.numbers), timer) for timer in rang]
        self._timers[:] = timers
        heapq.heapify(self._timers)
        owner.suspended_at = None
        self.thaw(owner)

    # --- tasks and futures ------------------------------------------------------------------------------------------

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        self._check_closed()  # type: ignore[attr-defined]
        number = next(self.numbers)
        owner = OWNER.get() if context is None else context.get(OWNER)
        task: SimTask[T] = SimTask(
            coro, number=number, owner=owner, loop=self, name=name or f"task-{number}", context=context
        )
        task.add_done_callback(self._note_bug, context=_NOBODY)
        self._all_tasks.append(task)
        if len(self._all_tasks) > self._prune_at:
            self._all_tasks = [t for t in self._all_tasks if not t.done()]
            self._prune_at = 2 * len(self._all_tasks) + 1_000
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run ``func`` in this thread after a delay, and deliver its result after another, as from a real thread."""
        future: asyncio.Future[T] = self.create_future()
        self.call_later(self.thread_latency_s(), self._run_job, future, func, args)
        return future

    def _run_job(self, future: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - set on the future
            self.call_later(self.thread_latency_s(), _fail, future, error)
        else:
            self.call_later(self.thread_latency_s(), _finish, future, result)

    # --- ends -------------------------------------------------------------------------------------------------------

    def _note_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.unhandled.append(f"{context['message']}: {error!r}")

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        """Do not track generators: those of dead processes must not be closed, and a finished run closes none."""

    def _note_bug(self, task: asyncio.Task[Any]) -> None:
        """Note a task that failed with an error outside the domain: a bug, even if its awaiter swallows the error.

        (``Task.cancel`` on a failed task silences asyncio's own report.)"""
        error = None if task.cancelled() else task._exception
        if error is not None and not _is_expected(error):
            self.unhandled.append(f"{task.get_name()} failed with {error!r} at {place_of(error)}")

    def describe_pending(self, limit: int = 40) -> str:
        """Describe the position of each waiting task, for the message of a deadlock."""
        lines = []
        for task in self._all_tasks:
            if task.done() or (task.owner is not None and task.owner.state is OwnerState.DEAD):
                continue
            lines.append(f"{task.owner.name if task.owner else 'sim'}:{task.get_name()} at {_waits_at(task)}")
        return f"{len(lines)} tasks: " + "; ".join(lines[:limit])

    def failures(self) -> list[str]:
        """Return errors of tasks that no code retrieved so far, including swallowed bugs."""
        for task in self._all_tasks:
            is_dead = task.owner is not None and task.owner.state is OwnerState.DEAD  # nothing left to retrieve it
            if task.done() and task._log_traceback and not is_dead:
                self.unhandled.append(f"{task.get_name()}: {task.exception()!r}")
        return list(dict.fromkeys(self.unhandled))

    def close(self) -> None:
        """End all waiting tasks.

        Coroutines are closed here, since a later garbage collection would complain that their loop is closed. The
        effects of their ``finally`` blocks do not matter: the run is over."""
        for task in self._all_tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if task.done() and task._log_traceback:
                self.unhandled.append(f"{task.get_name()}: {task.exception()!r}")
        super().close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # never awaited coroutines in a ``finally``
            for task in self._all_tasks:
                for _ in range(CLOSE_ATTEMPTS):
                    try:
                        task.get_coro().close()
                    except BaseException:  # noqa: BLE001 - a ``finally`` that waits or calls the closed loop
                        continue
                    break


_NOBODY = contextvars.Context()


def place_of(error: BaseException) -> str:
    """Return the lines at which an error was raised, innermost first, as one line."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    return " < ".join(f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in reversed(frames))


def _waits_at(task: asyncio.Task[Any]) -> str:
    """Return the innermost lines of the coroutines and generators in which the task is suspended."""
    places: list[str] = []
    at: Any = task.get_coro()
    while at is not None:
        frame = getattr(at, "cr_frame", None) or getattr(at, "ag_frame", None) or getattr(at, "gi_frame", None)
        if frame is not None:
            places.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")
        at = getattr(at, "cr_await", None) or getattr(at, "ag_await", None) or getattr(at, "gi_yieldfrom", None)
    return " < ".join(places[:-4:-1]) or "?"


def _is_expected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_expected(e) for e in error.exceptions)
    return isinstance(error, SeaweedMQError | TimeoutError | SimError | GeneratorExit | KeyboardInterrupt)


def _finish(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
