"""Makes the calls of a list in turn, a few in flight, and tells after each tenth where the stack stands."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.queue.toys import costs
from signalbox.client import AsyncClient
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import SignalboxError

IN_FLIGHT: Final = 16
TENTHS: Final = 10
LOADED: Final = "model.loaded"
LIMIT_S: Final = 3600.0
"""A list that takes longer ends the benchmark."""


class Outcome(NamedTuple):
    """What came of a list. refused: errors by text. loads: of all workers. resident_mb: by program, each tenth."""

    refused: Counter[str]
    loads: int
    resident_mb: Sequence[Mapping[str, float]]

    def errors(self) -> str:
        """The line of the table that says whether there were any."""
        worst = "".join(f"; {count} times {text}" for text, count in self.refused.most_common(3))
        return line("errors", f"{self.refused.total()}", "none", is_met=not self.refused) + worst


async def make(stack: UpStack, key: str, called: Sequence[str]) -> Outcome:
    """Make all calls. Raises :class:`TimeoutError`."""
    refused: Counter[str] = Counter()
    resident, before, loads = [], logged(stack, LOADED), 0
    async with AsyncClient(stack.front_url, key, connections=IN_FLIGHT, retries=0) as client, asyncio.timeout(LIMIT_S):
        for number in range(TENTHS):
            first, end = (len(called) * each // TENTHS for each in (number, number + 1))
            began, waiting = time.monotonic(), iter(called[first:end])
            await asyncio.gather(*(_call(client, waiting, refused) for _ in range(IN_FLIGHT)))
            rate, loads = (end - first) / (time.monotonic() - began), logged(stack, LOADED) - before
            resident.append({name: each.rss_bytes / 1e6 for name, each in costs(stack).items()})
            memory = ", ".join(f"{name} {size:.0f}" for name, size in resident[-1].items())
            print(
                f"{end:>7,} calls, {rate:.0f} a second; {loads:,} loads, {refused.total()} errors; MB: {memory}",
                flush=True,
            )
    return Outcome(refused, loads, resident)


async def _call(client: AsyncClient, waiting: Iterator[str], refused: Counter[str]) -> None:
    for name in waiting:
        try:
            await client.predict(name, instances=[1.0])
        except SignalboxError as error:
            text = f"{type(error).__name__}: {error.public_message}"
            if not refused[text]:
                print(f"  ({text})", flush=True)
            refused[text] += 1


def logged(stack: UpStack, event: str) -> int:
    """How often the workers have logged an event so far."""
    files = (stack.data.path / "logs").glob("worker-*.log*")
    return sum(path.read_text().count(f'"{event}"') for path in files)


def line(what: str, found: str, wanted: str, *, is_met: bool) -> str:
    """A line of the table at the end."""
    return f"  {what:<52} {found:>12}  {wanted:<24} {'as promised' if is_met else 'NOT MET'}"
