"""Lists an object store around keys that its library cannot take: a part that is empty, ``.`` or ``..``, or a control
character.

A page with such a key does not come at all. The top folder of the key is left out; what its page had before that folder
is listed folder by folder, and the listing goes on behind it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from signalbox.program.errors import LimitExceeded
from signalbox.repositories.entry import MOST_ENTRIES, Entry
from signalbox.repositories.faults import UnlistableKey
from signalbox.repositories.store import ObjectStore

MOST_UNLISTED: Final = 20
"""Folders that may be left out: each costs a page, and a request for each folder on it, in every listing."""
_BEHIND_SLASH: Final = "0"
"""The character after ``/``: what begins with a folder's name and it comes behind all that the folder holds."""


Turn = Callable[[], Awaitable[None]]
"""Awaited before each request."""


async def pages(store: ObjectStore, unlisted: dict[str, str], turn: Turn) -> AsyncIterator[list[Entry]]:
    """Every file, some at a time, in the store's order, but those of folders that are noted in ``unlisted``, with why.

    Raises as :meth:`ObjectStore.pages`; :class:`UnlistableKey` where no folder can be left out for a key, where there
    are too many, and of Azure, whose listings begin nowhere but at the beginning.
    """
    after, total = "", 0
    while True:
        folder = ""
        try:
            async for page in _in_turn(store.pages(after), turn):
                after, total = page[-1].path if page else after, total + len(page)
                yield page
        except UnlistableKey as error:
            prefix = store.location.prefix
            folder = error.key.removeprefix(f"{prefix}/" if prefix else "").partition("/")[0]
            is_too_much = len(unlisted) == MOST_UNLISTED or store.location.scheme == "az"
            if not folder or folder in unlisted or is_too_much:
                raise
            unlisted[folder] = (
                f"{error.public_message} Nothing of this folder is noticed until then; what serves goes on."
            )
        if not folder:
            return
        async for page in _before(store, after, f"{folder}/", turn):
            total += len(page)
            yield page
        if total > MOST_ENTRIES:
            raise LimitExceeded(f"Repository {store.name} has more than {MOST_ENTRIES} files.")
        after = folder + _BEHIND_SLASH


async def _before(store: ObjectStore, after: str, end: str, turn: Turn) -> AsyncIterator[list[Entry]]:
    """What comes after the file ``after`` and before ``end``."""
    await turn()
    folders, files = await store.top()
    if found := [file for file in files if after < file.path < end]:
        yield found
    for folder in sorted(folders, key=lambda name: f"{name}/"):
        if f"{folder}/" < end and (f"{folder}/" > after or after.startswith(f"{folder}/")):
            async for page in _in_turn(store.pages(after, below=folder), turn):
                yield page


async def _in_turn(pages: AsyncIterator[list[Entry]], turn: Turn) -> AsyncIterator[list[Entry]]:
    """These pages, each asked for in its turn."""
    while True:
        await turn()
        page = await anext(pages, None)
        if page is None:
            return
        yield page
