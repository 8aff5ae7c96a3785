"""Server-sent events from the bytes of a stream (WHATWG HTML 9.2)."""

from typing import NamedTuple


class ServerSent(NamedTuple):
    """One event. id: the last that the stream has named. kind: ``message`` where it has no name."""

    id: str
    kind: str
    data: str


class Reader:
    """Reads one stream. retry_s: how long a reconnect should wait, None until the server has said."""

    def __init__(self) -> None:
        self.retry_s: float | None = None
        self._rest = b""
        self._id = self._kind = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerSent]:
        """The events that are whole with these bytes. Lines end as our server ends them: with LF, or CRLF."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        found = []
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if text:
                self._field(*text.partition(":")[::2])
            elif self._data:
                found.append(ServerSent(self._id, self._kind or "message", "\n".join(self._data)))
            if not text:
                self._kind, self._data = "", []
        return found

    def _field(self, name: str, value: str) -> None:
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id":
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_s = float(value) / 1000
