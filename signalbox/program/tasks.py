"""Owners of tasks: for what an object does beside its callers, and for calls that several callers wait for.

Each task of a program belongs to a :class:`TaskGroup`, to one of these owners, or to the function that makes and
ends it (``tests/unit/repository/test_task_owners.py``).
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Hashable, Iterable
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from signalbox.program import log
from signalbox.program.errors import SignalboxError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_CANCEL_AGAIN_S: Final = 0.1


class TaskGroup(asyncio.TaskGroup):  # noqa: TID251  the one place where it is mended
    """The one of asyncio; its failure leaves no cancellation behind.

    Where a task of the group fails while the group is waited for, asyncio cancels the task that waits. Until Python
    3.13 that stays counted there for ever, and in Python 3.11 each later ``asyncio.timeout`` of that task that passes
    raises ``CancelledError`` in place of ``TimeoutError``: the task ends as if somebody had cancelled it.
    """

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        was_cancelled = self._is_cancelled_by_group
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            task = asyncio.current_task()
            if sys.version_info < (3, 13) and task and self._is_cancelled_by_group and not was_cancelled:
                task.uncancel()

    @property
    def _is_cancelled_by_group(self) -> bool:
        return bool(getattr(self, "_parent_cancel_requested", False))


class Background:
    """Tasks that run beside their owner's callers until they return, or until :meth:`cancel`.

    One that fails is logged, and counted unless the error is one of ours. The others run on.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __bool__(self) -> bool:
        """Whether anything runs."""
        return bool(self._tasks)

    def start(self, work: Coroutine[Any, Any, object], *, name: str) -> None:
        """Run ``work`` from now on."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def cancel(self) -> None:
        """Cancel what runs, and wait for its end. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await self.finish()

    async def finish(self) -> None:
        """Wait until what runs has returned, also what is started meanwhile. Idempotent."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SignalboxError):
            log.warning("task.failed", task=task.get_name(), reason=error.public_message)
        elif error is not None:
            log.exception("task.failed", error=error, task=task.get_name())


class SingleFlight(Generic[K, T]):
    """Calls that all who need the same answer wait for: of one key no more than one is in flight."""

    def __init__(self) -> None:
        self._in_flight: dict[K, asyncio.Task[T]] = {}

    def __contains__(self, key: K) -> bool:
        """Whether a call of ``key`` is in flight."""
        return key in self._in_flight

    def start(self, key: K, call: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Begin ``call`` unless one of ``key`` is in flight."""
        self._begun(key, call)

    async def ask(self, key: K, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What ``call`` returns or raises, or the one of ``key`` that is in flight. A caller may be cancelled."""
        return await asyncio.shield(self._begun(key, call))

    async def close(self) -> None:
        """Wait for the calls in flight. Idempotent."""
        if self._in_flight:
            await asyncio.wait(list(self._in_flight.values()))

    def _begun(self, key: K, call: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        task = self._in_flight.get(key)
        if task is None:
            task = self._in_flight[key] = asyncio.create_task(call(), name=str(key))
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return task

    def _ended(self, key: K, task: asyncio.Task[T]) -> None:
        del self._in_flight[key]
        if not task.cancelled():
            task.exception()  # the callers may all be cancelled, and asyncio would log a failure that nobody read


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks until all have ended.

    Once is not enough where a library uses ``asyncio.wait_for``: in Python 3.11 it loses a cancellation that comes
    together with what it waits for.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_S)
