"""Jobs that a worker learns of: of the models that it listens to, and of every model where those are very many."""

import asyncio

import pytest

from signalbox.bus.client import Bus
from tests.rigs.submit import Ledger, floats
from workers.host import hints
from workers.host.hints import Hints

LIMIT_S = 30.0


class Ears:
    """What was received."""

    def __init__(self, bus: Bus) -> None:
        self.models: asyncio.Queue[str] = asyncio.Queue()
        self.looks: asyncio.Queue[str] = asyncio.Queue()
        self.hints = Hints(bus, lambda model, _, __: self.models.put_nowait(model), self.looks.put_nowait)

    async def next(self) -> str:
        async with asyncio.timeout(LIMIT_S):
            return await self.models.get()


async def test_only_what_is_listened_to_is_received(bus: Bus, ledger: Ledger) -> None:
    ears = Ears(bus)
    await ears.hints.listen(["a.b", "c"])
    for model in ("unknown", "a.b", "c"):
        await ledger.submit(model, floats(1.0))
    assert [await ears.next(), await ears.next()] == ["a.b", "c"]
    ears.hints.ignore(["c"])
    for model in ("c", "a.b"):
        await ledger.submit(model, floats(1.0))
    assert await ears.next() == "a.b"
    ears.hints.close()


async def test_very_many_models_are_received_by_one_subscription(
    bus: Bus, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "MOST_APART", 3)
    ears = Ears(bus)
    before = len(bus.connection.handlers)  # type: ignore[attr-defined]
    await ears.hints.listen(["a", "b", "c"])
    await ears.hints.listen(["d.e"])
    assert len(bus.connection.handlers) - before == 2, "one for all jobs, one for looks"  # type: ignore[attr-defined]
    for model in ("a", "d.e"):
        await ledger.submit(model, floats(1.0))
    assert [await ears.next(), await ears.next()] == ["a", "d.e"], "each once"
    await bus.publish("redeliver.d=2Ee")
    async with asyncio.timeout(LIMIT_S):
        assert await ears.looks.get() == "d.e"
    ears.hints.close()
    assert len(bus.connection.handlers) == before  # type: ignore[attr-defined]
