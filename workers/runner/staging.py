"""Lays a version's files out where the runner may read them, only while it loads them.

A runner's sandbox lets it read one folder of models, which the worker makes before the runner starts: the staging
folder. The worker, outside the sandbox, lays a version out there for the load and takes it away when the load has
ended, so a model that opens a path later finds nothing there, whatever operation it found for that. One version lies
there at a time, under a name that cannot be guessed, in a folder that cannot be listed.

A disk that does not answer keeps one thread, and refuses what else lies below the same folder of models until it does:
versions from elsewhere are laid out meanwhile, and the worker's end waits for nothing.

A worker that dies leaves its folder; the kernel frees the lock in it, and the next worker that starts removes it.
"""

import asyncio
import fcntl
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from signalbox.program import log
from signalbox.program.errors import Unavailable
from workers.runner.layout import lay_out

_PREFIX: Final = "signalbox-staging-"
_LOCK: Final = "lock"
_THREAD: Final = "lay out"
_STOP_S: Final = 1.0
"""What was given up and is well has stopped by then."""
_Ways = dict[str, int]


class Stages(Protocol):
    """Shows a runner the files of one version after another."""

    folder: Path
    """What the runner may read."""

    def make(self) -> None:
        """Before a runner starts. Idempotent."""

    def remove(self) -> None:
        """After the last runner has ended. Idempotent."""

    def staged(self, source: Path) -> AbstractAsyncContextManager[Path]:
        """The files of the version's folder ``source``, in a folder that is there inside the context."""


class Staging:
    """The staging folder of one worker's runner, a new one below ``parent``.

    roots: versions are taken from below these only; empty = from anywhere. reader_gid: group of the runner's user
    where it has one of its own.
    """

    def __init__(self, parent: Path, roots: Sequence[str] = (), reader_gid: int | None = None) -> None:
        self.folder = parent / f"{_PREFIX}{secrets.token_hex(8)}"
        self._roots = tuple(roots)
        self._reader_gid = reader_gid
        self._lock_fd = -1
        self._one_version = asyncio.Lock()
        self._given_up: dict[Path, asyncio.Future[_Ways]] = {}
        """By folder of models: layouts that no load waits for any more and that have not ended."""

    def make(self) -> None:
        """Make a stage (:class:`Stages`). Removes what workers that have died left below the same parent."""
        if self._lock_fd >= 0:
            return
        parent = self.folder.parent
        parent.mkdir(parents=True, exist_ok=True)
        for old in parent.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                _remove_if_orphaned(old)
        draft = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))  # no sweep looks at it
        self._lock_fd = os.open(draft / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._reader_gid is not None:
            os.chown(draft, -1, self._reader_gid)
        draft.chmod(0o300 if self._reader_gid is None else 0o310)  # entered, and not listed
        draft.rename(self.folder)

    def remove(self) -> None:
        """Remove a stage (:class:`Stages`)."""
        if self._lock_fd >= 0:
            with suppress(OSError):
                _remove(self.folder)
            os.close(self._lock_fd)
            self._lock_fd = -1

    @asynccontextmanager
    async def staged(self, source: Path) -> AsyncIterator[Path]:
        """Lay a version out (:class:`Stages`). One at a time.

        Raises :class:`ModelError` where the version may not be read, :class:`Unavailable` without room for a copy or
        where the disk does not answer.
        """
        root = self._root_of(source)
        async with self._one_version:
            await self._refuse_hung(root)
            place = self.folder / secrets.token_hex(16)
            remove = partial(shutil.rmtree, place, ignore_errors=True)
            is_stopped = threading.Event()
            is_for_others = self._reader_gid is not None
            laying = _in_thread(partial(lay_out, source, place, self._roots, is_for_others, is_stopped.is_set))
            try:
                how = await asyncio.shield(laying)
            except asyncio.CancelledError:
                is_stopped.set()  # the thread removes what it has laid out, unless it has just ended
                self._give_up(root, laying, remove)
                raise
            log.debug("model.staged", how=how)
            try:
                yield place
            finally:
                await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, remove))

    def _root_of(self, source: Path) -> Path:
        """The folder of models that it is said to lie below. Asks no disk."""
        roots = (Path(root) for root in self._roots)
        return next((root for root in roots if source.is_relative_to(root)), source.parent.parent)

    async def _refuse_hung(self, root: Path) -> None:
        """Raises :class:`Unavailable` where what was given up before still hangs."""
        if (laying := self._given_up.get(root)) is not None:
            await asyncio.wait([laying], timeout=_STOP_S)
        if root in self._given_up:
            raise Unavailable(
                "The disk of the models does not answer: a version that was to be laid out for its load is still being"
                " read. Others from there are refused until that ends."
            )

    def _give_up(self, root: Path, laying: asyncio.Future[_Ways], remove: Callable[[], None]) -> None:
        self._given_up[root] = laying

        def ended(_: asyncio.Future[_Ways]) -> None:
            del self._given_up[root]
            if not laying.cancelled():
                laying.exception()  # the error is dropped: its load has given up
            remove()

        laying.add_done_callback(ended)


MakeStages = Callable[[Path, Sequence[str], int | None], Stages]
"""Of the arguments of :class:`Staging`."""


def _in_thread(act: Callable[[], _Ways]) -> asyncio.Future[_Ways]:
    """In a thread of its own that nothing waits for at the process's end: what hangs in the kernel cannot be ended."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Ways] = loop.create_future()

    def settle(result: _Ways | BaseException) -> None:
        if future.done():
            return
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)

    def run() -> None:
        try:
            result: _Ways | BaseException = act()
        except BaseException as error:  # noqa: BLE001  who waits gets it
            result = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name=_THREAD, daemon=True).start()
    return future


def _remove_if_orphaned(old: Path) -> None:
    """Remove the folder of a worker that is gone; that of one that lives is locked."""
    if old.lstat().st_uid != os.geteuid() or old.is_symlink():
        return
    try:
        lock_fd = os.open(old / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        _remove(old)  # its worker died while it removed it
        return
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(old)
    finally:
        os.close(lock_fd)


def _remove(folder: Path) -> None:
    folder.chmod(0o700)
    shutil.rmtree(folder)
