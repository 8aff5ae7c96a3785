"""Counts calls by key, and reports them to the console once a minute: a request costs one increment.

The report is a core message with the ids of the keys in use; a header has the calls. If one is lost, its calls are
missing, and the next one names the keys that are still in use.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from signalbox.bus.client import Bus
from signalbox.program.errors import Bug, SignalboxError
from signalbox.program.tasks import Background
from signalbox.wire import names
from signalbox.wire.messages import header
from signalbox.wire.names import Header
from signalbox.wire.used import KeyCalls

EVERY_S: Final = 60.0
_AT_ONCE: Final = 500
"""Keys of one message."""
_MOST_REASONS: Final = 16
"""Of one key in one message; what is rarer is summed under :data:`OTHER`."""
_MOST_REFUSED: Final = 20_000
"""Pairs of key and reason that are counted at once; new ones beyond are not."""
OTHER: Final = "other"


class KeyCounts:
    """What was called since the last report.

    note: told the id of each key that is let in. calls: of a key, by its id; whoever answers a call adds one.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self.note = self._used.add
        self.calls: defaultdict[str, int] = defaultdict(int)
        self._refused: Counter[tuple[str, str]] = Counter()

    def refuse(self, kid: str, error: Exception) -> None:
        """One call of those was answered with an error."""
        found = error if isinstance(error, SignalboxError) else Bug()
        bound = found.facts.get("bound", "")
        self.refuse_for(kid, f"{found.code}:{bound}" if bound else found.code)

    def refuse_for(self, kid: str, reason: str) -> None:
        """One call of those was refused. reason: an error's code, or one with more after a colon."""
        pair = kid, reason
        if pair in self._refused or len(self._refused) < _MOST_REFUSED:
            self._refused[pair] += 1

    def taken(self) -> Iterator[tuple[list[str], dict[str, int], dict[str, dict[str, int]]]]:
        """Parts of what was counted, which begins anew: keys in use, their calls, their refusals by reason."""
        used, calls = sorted(self._used | self.calls.keys()), dict(self.calls)
        by_key: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for (kid, reason), count in self._refused.items():
            by_key[kid][reason] = count
        self._used.clear()
        self.calls.clear()
        self._refused.clear()
        for start in range(0, len(used), _AT_ONCE):
            part = used[start : start + _AT_ONCE]
            yield (
                part,
                {kid: calls[kid] for kid in part if kid in calls},
                {kid: _bounded(by_key[kid]) for kid in part if kid in by_key},
            )


class KeyUse:
    """Tells ``counts`` every ``every_s`` seconds."""

    def __init__(self, bus: Bus, counts: KeyCounts, *, every_s: float = EVERY_S) -> None:
        self._bus = bus
        self._counts = counts
        self._every_s = every_s
        self._telling = Background()

    def start(self) -> None:
        """Tell from now on."""
        self._telling.start(self._tell_often(), name="key use")

    async def close(self) -> None:
        """Tell what is left and stop. Idempotent."""
        await self._telling.cancel()
        with suppress(SignalboxError):
            await self.tell()

    async def tell(self) -> None:
        """Tell what was used since the last time; while NATS is away that is counted on. Raises as
        :meth:`Bus.publish`."""
        if not self._bus.is_connected:
            return
        for used, calls, refused in self._counts.taken():
            counted = KeyCalls(calls=calls, refused=refused)
            await self._bus.publish(names.KEY_USE, msgspec.json.encode(used), headers={Header.CALLS: header(counted)})

    async def _tell_often(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            with suppress(SignalboxError):  # what was counted until now is lost, what comes is told
                await self.tell()


def _bounded(reasons: Counter[str]) -> dict[str, int]:
    kept = dict(reasons.most_common(_MOST_REASONS))
    rest = reasons.total() - sum(kept.values())
    return {**kept, OTHER: rest} if rest else kept
