"""Loads a model ahead of need, and disables it, for the owner of a key: an answer comes when that is so."""

import asyncio
import time
from typing import Final

from gateway_plugin.service.console import Console
from gateway_plugin.tables.catalog import Catalog
from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.program.errors import DeadlineExceeded, NotServing
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.modeldocs import Model

KEPT_S: Final = 600.0
"""For so long workers load the model again if it had to leave."""
_TOLD_S: Final = 5.0
"""How long this gateway waits for what the console has published."""


class Loading:
    """Loads and unloads. longest_s: that an answer is waited for."""

    def __init__(self, console: Console, catalog: Catalog, workers: LiveWorkers, *, longest_s: float) -> None:
        self._console = console
        self._catalog = catalog
        self._workers = workers
        self._longest_s = longest_s
        self._changed = asyncio.Event()

    def table_changed(self) -> None:
        """Look again: a model, a worker, or what requests get has changed."""
        self._changed.set()

    async def load(self, key: ApiKey, name: str, timeout_s: float | None = None) -> None:
        """Return when the version that requests get is in memory on each device that the model is placed on.

        timeout_s: until the caller's deadline. Raises as :meth:`Console.ask`, :class:`NotServing` where it cannot be
        loaded, with the reason, and :class:`DeadlineExceeded` where it is not yet: workers go on.
        """
        await self._console.ask(key, "load", model=name, until=time.time() + KEPT_S)
        why = "this gateway was not told of it yet"
        try:
            async with asyncio.timeout(min(timeout_s or self._longest_s, self._longest_s)):
                while why := self._why_cold(key, name):
                    await self._change()
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"{name} is not loaded on all of its devices yet: {why}. Workers go on; ask again."
            ) from error

    async def unload(self, key: ApiKey, name: str) -> None:
        """Return when this gateway refuses requests for the model. Raises as :meth:`Console.ask`."""
        await self._console.ask(key, "unload", model=name)
        try:
            async with asyncio.timeout(_TOLD_S):
                while (model := self._catalog.find(name, key)) is not None and model.is_enabled:
                    await self._change()
        except TimeoutError as error:
            raise DeadlineExceeded(f"{name} is unloaded, and this gateway was not told of it yet.") from error

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _why_cold(self, key: ApiKey, name: str) -> str:
        """What is missing; empty where nothing is. Raises :class:`NotServing` where waiting does not help."""
        model = self._catalog.find(name, key)
        if model is None or not model.is_enabled:
            return "this gateway was not told of it yet"
        version = self._catalog.ready(name, key=key).version.version
        serving = self._workers.serving(model)
        if not serving:
            raise NotServing(f"No worker serves {name} now. It is loaded once one does.", model=name)
        states: dict[str, list[tuple[str, str]]] = {worker.device.id: [] for worker in serving}
        for worker in serving:
            states[worker.device.id] += [
                (one.state, one.error) for one in worker.models if (one.model, one.version) == (name, version)
            ]
        return next((why for device, told in states.items() if (why := _why(model, version, device, told))), "")


def _why(model: Model, version: int, device: str, told: list[tuple[str, str]]) -> str:
    """Why a device lacks the version, from what its workers tell; empty where it does not."""
    found = dict(told)
    if "ready" in found:
        return ""
    if "failed" in found:
        raise NotServing(
            f"Version {version} of {model.name} cannot be loaded on {device}: {found['failed']}", model=model.name
        )
    if "crowded" in found:
        raise NotServing(
            f"Version {version} of {model.name} does not fit on {device} beside what is there.", model=model.name
        )
    state, error = told[0] if told else ("waiting for its turn", "")
    return f"on {device} it is {state}" + (f" ({error})" if error else "")
