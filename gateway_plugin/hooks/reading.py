"""Bounds the messages that are being read at once, and the time that one of an unproven client may take."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

_MOST_PEERS: Final = 4096
_UNPROVEN: Final = 2
PROOF_S: Final = 10.0
"""How long a client that has not shown the secret may take over one message."""


class Reading:
    """Places to read a message. most: places of clients that have shown the secret; the others share two of their own.

    gRPC holds what it has not been asked to read in the client (flow control), so memory for messages that have not
    come whole is bounded by the places and the largest message. is_proven: no secret is wanted.
    """

    def __init__(self, most: int, *, is_proven: bool) -> None:
        self._proven = asyncio.Semaphore(max(most, _UNPROVEN))
        self._unproven = asyncio.Semaphore(_UNPROVEN)
        self._is_proven = is_proven
        self._peers: OrderedDict[str, None] = OrderedDict()

    def place(self, peer: str) -> AbstractAsyncContextManager[None]:
        """Room for one message of ``peer``. Raises :class:`TimeoutError` where it takes too long to prove itself."""
        return self._proven if self._is_proven or peer in self._peers else self._place_of_a_stranger()

    @asynccontextmanager
    async def _place_of_a_stranger(self) -> AsyncIterator[None]:
        async with self._unproven, asyncio.timeout(PROOF_S):
            yield

    def prove(self, peer: str) -> None:
        """A call of ``peer`` has shown the secret. The oldest is forgotten where there are many."""
        self._peers[peer] = None
        self._peers.move_to_end(peer)
        if len(self._peers) > _MOST_PEERS:
            self._peers.popitem(last=False)
