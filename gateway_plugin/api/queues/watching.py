"""A watch of a queue as a websocket: one item a frame."""

from gateway_plugin.api.queues.frames import frame
from gateway_plugin.api.queues.paths import Address
from gateway_plugin.queues.watching.openwatch import OpenWatch
from gateway_plugin.service.queues import WATCH, Queues
from signalbox.wire.keydocs import ApiKey


class WatchSocket:
    """What a websocket sends of one watch."""

    def __init__(self, queues: Queues, at: Address, opened: OpenWatch) -> None:
        self._queues = queues
        self._at = at
        self._opened = opened

    async def next(self) -> bytes | None:
        """The next frame, as soon as there is one; None: the stream is complete. Raises errors of ours."""
        item = await self._opened.next()
        return None if item is None else frame(item)

    def check(self, key: ApiKey) -> None:
        """Raise what ends the watch: the queue is gone, or the key, as it is now, may not watch it."""
        self._queues.find(key, self._at.name, WATCH)

    async def close(self) -> None:
        """Give back what is not committed."""
        await self._opened.close()
