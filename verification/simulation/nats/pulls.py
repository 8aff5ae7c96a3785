"""The pull requests parked at one consumer: whose turn it is, and when each is over."""

from collections import deque
from typing import TYPE_CHECKING

from verification.simulation.nats.messages import NANO, decode, status_block

if TYPE_CHECKING:
    from verification.simulation.nats.server import Server


class Pull:
    """A pull request. n: messages it still takes; ends_at: time of the loop, 0 = never."""

    __slots__ = ("ends_at", "is_one_shot", "n", "reply", "taken")

    def __init__(self, reply: bytes, body: bytes, now: float) -> None:
        self.reply = reply
        asked = decode(body)
        self.n = asked.get("batch") or 1
        expires_s = asked.get("expires", 0) / NANO
        self.is_one_shot = bool(asked.get("no_wait"))
        self.ends_at = now + expires_s if expires_s else 0.0
        self.taken = 0


class Pulls:
    """See the module."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._waiting: deque[Pull] = deque()
        self._expiries = 0
        self._expire_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, pull: Pull) -> None:
        """Have it wait its turn."""
        self._waiting.append(pull)

    def take(self) -> Pull | None:
        """The one whose turn it is: each takes one and goes to the end of the line."""
        while self._waiting:
            pull = self._waiting[0]
            if pull.ends_at and pull.ends_at <= self._server.loop_time():
                self._close(pull, 408, "Request Timeout")
            elif not self._server.interest.of(pull.reply.decode()):
                self._waiting.popleft()
            else:
                pull.n -= 1
                pull.taken += 1
                self._waiting.popleft()
                if pull.n:
                    self._waiting.append(pull)
                return pull
        return None

    def arm(self) -> None:
        """See to it that each ends in time."""
        ends = min((pull.ends_at for pull in self._waiting if pull.ends_at), default=0.0)
        if not ends or (self._expire_at and self._expire_at <= ends):
            return
        self._expire_at = ends
        self._expiries += 1
        self._server.later(ends - self._server.loop_time(), self._expire, self._expiries)

    def end_one_shots(self) -> None:
        """A request that does not wait is over at the end of what there was, unless it may wait for its first."""
        for pull in [pull for pull in self._waiting if pull.is_one_shot]:
            if not pull.ends_at or pull.taken:
                self._close(pull, 404, "No Messages", is_counted=False)

    def drop_deaf(self) -> None:
        """Forget requests whose inbox has no subscriber any more."""
        received = self._server.interest.of
        self._waiting = deque(pull for pull in self._waiting if received(pull.reply.decode()))

    def end_all(self, code: int, text: str) -> None:
        """Tell all that they are over."""
        for pull in list(self._waiting):
            self._close(pull, code, text, is_counted=False)

    def forget(self) -> None:
        """The server, or the leader, is another and knows of none."""
        self._waiting.clear()
        self._expire_at = 0.0
        self._expiries += 1

    def refuse(self, reply: bytes, code: int, text: str) -> None:
        """Answer a request that is not parked."""
        self._server.route(reply.decode(), b"", status_block(code, text))

    def _expire(self, expiry: int) -> None:
        if expiry != self._expiries:
            return
        self._expire_at = 0.0
        now = self._server.loop_time() + 1e-6
        for pull in [pull for pull in self._waiting if 0 < pull.ends_at <= now]:
            self._close(pull, 408, "Request Timeout")
        self.arm()

    def _close(self, pull: Pull, code: int, text: str, *, is_counted: bool = True) -> None:
        self._waiting.remove(pull)
        counts: dict[str, object] = {}
        if is_counted:
            counts = {"Nats_Pending_Messages": pull.n, "Nats_Pending_Bytes": 0}
        self._server.route(pull.reply.decode(), b"", status_block(code, text, **counts))
