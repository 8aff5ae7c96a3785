"""Measures what follows on a device whose holder has a fault."""

from tests.rigs.processes import is_alive
from verification.chaos.evidence.journal import now
from verification.chaos.faults.fault import FENCE_S, HELD_S, WIDE_S, measured
from verification.chaos.rig.composed import Production


class Holder:
    """What becomes of the device when ``name`` is the worker that holds it; nothing where it is not."""

    def __init__(self, stack: Production, name: str) -> None:
        self._stack, self._name = stack, name
        held = [h for h in stack.recorder.holders.values() if h["owner"] == name]
        self.is_holder = bool(held)
        self._gpu = str(held[0]["gpu"]) if held else ""
        self._token = int(held[0]["token"]) if held else 0
        self._runner = stack.runner_of(name) if held else 0
        rivals = [w for w in stack.workers if w != name]
        self._has_rival = len(stack.recorder.holders) <= len(rivals)

    async def fenced(self, began: float) -> None:
        """Its runner dies in time and another holds the device."""
        if not self.is_holder:
            return
        if self._runner:
            await self._stack.until(lambda: not is_alive(self._runner), what="the fenced runner's end")
            self._measured("runner dead", now() - began, FENCE_S)
        await self.moved(since=began)

    async def moved(self, *, since: float) -> None:
        """Another holds the device."""
        if self.is_holder and self._has_rival:
            await self._stack.until(self._is_new, what="another holder")
            self._measured("another holder", now() - since, HELD_S)

    def _is_new(self) -> bool:
        held = self._stack.recorder.holders.get(self._gpu)
        return held is not None and held["token"] > self._token

    def _measured(self, what: str, seconds: float, promised_s: float) -> None:
        measured(self._stack, "holder", self._name, what, seconds, WIDE_S, promised_s=promised_s)
