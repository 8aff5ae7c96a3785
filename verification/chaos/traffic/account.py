"""An account of the front: one API key, and the jobs whose end it has not seen."""

import json
from typing import Final

from signalbox.ops.httppool import ConnectionPool, Response
from signalbox.program.errors import SignalboxError
from verification.chaos.evidence.journal import Journal

ANSWER_S: Final = 20.0
MOST_CALLS: Final = 128
"""At once."""


class Account:
    """One API key and what it was promised. open: jobs whose end it has not seen."""

    def __init__(self, name: str, url: str, key: str, ledger: Journal) -> None:
        self.name, self.key = name, key
        self.pool = ConnectionPool(url, size=MOST_CALLS, timeout_s=ANSWER_S)
        self.ledger = ledger
        self.open: dict[str, float] = {}
        self.latest = ""
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    async def call(self, method: str, path: str, body: object = None, **headers: str) -> Response | None:
        """One request; None where there was no answer."""
        text = b"" if body is None else json.dumps(body).encode()
        try:
            return await self.pool.request(method, path, text, {**self._headers, **headers})
        except SignalboxError:
            return None
