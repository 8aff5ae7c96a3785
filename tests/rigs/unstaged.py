"""Where no SavedModel lies at a version's path: what computes is a toy, and its files are shown as they are."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def as_it_is(source: Path) -> AsyncIterator[Path]:
    yield source


class Unstaged:
    """In the place of :class:`workers.runner.staging.Staging`."""

    staged = staticmethod(as_it_is)

    def __init__(self, parent: Path, roots: Sequence[str] = (), reader_gid: int | None = None) -> None:
        self.folder = parent

    def make(self) -> None:
        pass

    def remove(self) -> None:
        pass
