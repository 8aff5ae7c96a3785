"""Open websocket connections of this process: a limit per operator, and a prompt to check rights again."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

Wake = Callable[[], None]


class Attendance:
    """Open connections by user. Any thread may call :meth:`doubt`; the rest is the event loop's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._present: dict[int, dict[Wake, asyncio.AbstractEventLoop]] = defaultdict(dict)

    def enter(self, user_id: int, wake: Wake, limit: int) -> bool:
        """Count one more connection; False if this user has ``limit`` open already."""
        with self._lock:
            mine = self._present[user_id]
            if len(mine) >= limit:
                return False
            mine[wake] = asyncio.get_running_loop()
            return True

    def leave(self, user_id: int, wake: Wake) -> None:
        """Forget a connection. Idempotent."""
        with self._lock:
            mine = self._present.get(user_id, {})
            mine.pop(wake, None)
            if not mine:
                self._present.pop(user_id, None)

    def count(self, user_id: int) -> int:
        """Connections this user has open."""
        with self._lock:
            return len(self._present.get(user_id, ()))

    def doubt(self, sender: Any = None, user_id: int = 0, **_: Any) -> None:
        """Have each connection of this user check login and rights now. Receiver of a signal."""
        with self._lock:
            woken = list(self._present.get(user_id, {}).items())
        for wake, loop in woken:
            if not loop.is_closed():
                loop.call_soon_threadsafe(wake)


attendance: Final = Attendance()
"""Of this process. Connections of another console process check again within their own period."""
