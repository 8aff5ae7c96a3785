"""Reads and inspects the ``saved_model.pb`` of versions that are new, and their models' ``config.pbtxt``: once each,
many in one sandboxed process."""

import asyncio
import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from console.catalog import inspection
from console.catalog.inspection import GraphInspection
from console.noticing.listing import MOST_GRAPH_BYTES, Place, Repositories
from console.noticing.plan import Key, Refusal, Step
from signalbox.program.errors import Conflict, NotFound, SignalboxError, TooLarge
from signalbox.program.tasks import TaskGroup
from signalbox.repositories.entry import Entry
from signalbox.repositories.triton import CONFIG, MOST_CONFIG_BYTES
from signalbox.repositories.version import SAVED_MODEL

_AT_ONCE: Final = 8
"""Downloads. Those of one call hold no more memory together than the graphs of one call may have."""
_INSPECTIONS_KEPT: Final = 500
_DIGESTS_KEPT: Final = 20_000
K = TypeVar("K")
V = TypeVar("V")


class Graphs:
    """Inspects graphs. What one says is kept by its sha256 and its model's ``config.pbtxt``, and that by the ETags that
    they were listed with."""

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories
        self._digests: dict[tuple[str, tuple[Entry, ...]], str] = {}
        self._known: dict[str, GraphInspection] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def read(self, place: Place, steps: Sequence[Step]) -> tuple[dict[Key, GraphInspection], dict[Key, Refusal]]:
        """What each graph says, and why others are refused. One that has changed since the listing is in neither.

        Raises what the repository raises where it is away, and :class:`Misconfigured` where no inspector runs.
        """
        digests: dict[Key, str] = {}
        refused: dict[Key, Refusal] = {}
        failed: list[SignalboxError] = []

        async def fetch(step: Step) -> None:
            if step.config is not None and step.config.size_bytes > MOST_CONFIG_BYTES:
                said = f"It has {step.config.size_bytes} bytes; at most {MOST_CONFIG_BYTES} are read."
                refused[step.key] = Refusal("config", said)
                return
            try:
                async with self._turns:
                    digests[step.key] = await self._fetched(place, step, folder)
            except TooLarge as error:
                refused[step.key] = Refusal("graph", error.public_message)
            except (Conflict, NotFound):
                return
            except SignalboxError as error:
                failed.append(error)

        with tempfile.TemporaryDirectory(prefix="signalbox-graphs-") as temporary:
            folder = Path(temporary)
            async with TaskGroup() as group:
                for step in steps:
                    group.create_task(fetch(step))
            if failed:
                raise failed[0]
            said = {digest: self._known[digest] for digest in digests.values() if digest in self._known}
            if said.keys() != set(digests.values()):
                said |= await asyncio.to_thread(inspection.inspect_graphs, folder)
        for digest, one in said.items():
            _keep(self._known, digest, one, _INSPECTIONS_KEPT)
        found = {key: said[digest] for key, digest in digests.items() if digest in said}
        refused |= {key: Refusal("config", one.config_error) for key, one in found.items() if one.config_error}
        refused |= {key: Refusal("graph", one.error) for key, one in found.items() if one.error}
        return {key: one for key, one in found.items() if key not in refused}, refused

    async def _fetched(self, place: Place, step: Step, folder: Path) -> str:
        """The files' digest; they lie in ``folder`` below a folder of that name, unless what they say is known."""
        listed = (place.url, step.inspected)
        digest = self._digests.get(listed, "") if all(entry.etag for entry in step.inspected) else ""
        if digest in self._known:
            return digest
        files = {SAVED_MODEL: await self._repositories.file(place, step.graph, most_bytes=MOST_GRAPH_BYTES)}
        if step.config is not None:
            files[CONFIG] = await self._repositories.file(place, step.config, most_bytes=MOST_CONFIG_BYTES)
        digest = await asyncio.to_thread(_lay, files, folder, self._known)
        _keep(self._digests, listed, digest, _DIGESTS_KEPT)
        return digest


def _lay(files: Mapping[str, bytes], folder: Path, known: Mapping[str, GraphInspection]) -> str:
    digest = "-".join(hashlib.sha256(data).hexdigest() for data in files.values())
    if digest not in known:
        (folder / digest).mkdir(exist_ok=True)
        for name, data in files.items():
            (folder / digest / name).write_bytes(data)
    return digest


def _keep(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """The oldest goes where there is no room."""
    kept[key] = value
    while len(kept) > most:
        del kept[next(iter(kept))]
