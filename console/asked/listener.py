"""Listens to what gateways ask. Of several programs that serve the console one gets each question."""

import asyncio
import time
from typing import Final

from channels.db import database_sync_to_async

from console.asked.answering import answer
from console.database import DATABASE_FAULTS
from console.feed.retry import RETRY_S, until_done
from console.projector.progress import complete_until
from console.projector.store import read_cursor
from signalbox.bus.client import Bus, Message
from signalbox.program import log
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.program.settings import Wire
from signalbox.program.tasks import Background
from signalbox.wire.asks import ConsoleAnswer
from signalbox.wire.messages import encode
from signalbox.wire.names import ANSWERERS, ask_console

MOST_WAITING: Final = 32
"""Questions that wait for the database; another one is refused."""
MOST_LISTS: Final = 24
"""Of them, lists: the others always find places."""
AS_OF_S: Final = 0.5
"""For how long what is known of the projector is good enough: rows only become more complete."""
_LISTS: Final = ask_console("jobs")
_BUSY: Final = encode(
    ConsoleAnswer(
        status=Unavailable.code, text="The console has too much to do. Try again in a moment.", retry_after_s=2.0
    )
)


async def answer_asks(wire: Wire) -> None:
    """Until cancelled, NATS there or not."""
    answerer = _Answerer(await _connect(wire))
    try:
        await until_done(answerer.listen)
        await asyncio.Event().wait()
    finally:
        await answerer.close()


class _Answerer:
    """Answers over one connection."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._tasks = Background()
        self._waiting = 0
        self._as_of = 0.0
        self._as_of_until = 0.0

    async def listen(self) -> None:
        await self._bus.subscribe(ask_console(), self._receive, group=ANSWERERS)

    async def close(self) -> None:
        await self._tasks.cancel()
        try:
            await self._bus.close()
        except SignalboxError as error:
            log.warning("asked.close_failed", reason=error.public_message)

    async def _answer(self, message: Message) -> None:
        try:
            as_of = await self._complete_until() if message.subject == _LISTS else 0.0
            said = await database_sync_to_async(answer)(message.data, as_of)
        finally:
            self._waiting -= 1
        await self._bus.publish(message.reply, said)

    async def _complete_until(self) -> float:
        """Up to when rows of jobs that are read from now on are complete; what was last known, where none can tell."""
        now = time.monotonic()
        if now >= self._as_of_until:
            try:
                place = await database_sync_to_async(read_cursor)()
                self._as_of = await complete_until(self._bus, place, time.time())
                self._as_of_until = now + AS_OF_S
            except (SignalboxError, *DATABASE_FAULTS) as error:
                log.warning("asked.place_unknown", reason=str(error))
        return self._as_of

    def _receive(self, message: Message) -> None:
        if not message.reply:
            return
        if self._waiting >= (MOST_LISTS if message.subject == _LISTS else MOST_WAITING):
            self._bus.send(message.reply, b"", b"", _BUSY)
            return
        self._waiting += 1
        self._tasks.start(self._answer(message), name="answer to a gateway")


async def _connect(wire: Wire) -> Bus:
    while True:
        try:
            return await Bus.connect(wire, role="console", name="asked")
        except SignalboxError as error:
            log.warning("asked.nats_unreachable", reason=error.public_message)
            await asyncio.sleep(RETRY_S)
