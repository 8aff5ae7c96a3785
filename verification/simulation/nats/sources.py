"""What one stream reads from another, as nats-server's sources do."""

import re
from typing import TYPE_CHECKING, Any, Final

from verification.simulation.nats.messages import Msg, with_headers
from verification.simulation.nats.subjects import transform

if TYPE_CHECKING:
    from verification.simulation.nats.server import Server
    from verification.simulation.nats.stream import Stream

_COPY_S: Final = 0.001
_STRIPPED: Final = re.compile(rb"Nats-(?:Expected|Batch)-[^\r]*\r\n")


class Source:
    """Copies what fits from the stream named in ``config`` into ``stream``, soon after it is stored there."""

    def __init__(self, server: "Server", stream: "Stream", config: dict[str, Any]) -> None:
        rule = config["subject_transforms"][0]
        self.name: str = config["name"]
        self._server = server
        self._stream = stream
        self._rule = (rule["src"], rule["dest"])
        self._move = transform(rule["src"], rule["dest"])
        self._seq = 0
        self._is_due = False
        self._origin = server.streams.get(self.name)
        if self._origin is not None:
            self._seq = self._origin.last_seq
            self._origin.on_stored.append(self._stored)

    def copy(self) -> None:
        """Take over what is new there."""
        self._is_due = False
        if self._origin is None or not self._server.has_leader(self._stream):
            return
        for msg in list(self._origin.from_(self._seq + 1)):
            self._seq = msg.seq
            subject = self._move(msg.subject)
            if subject is not None:
                line = f"Nats-Stream-Source: {self.name} {msg.seq} {self._rule[0]} {self._rule[1]} {msg.subject}\r\n"
                head = with_headers(_STRIPPED.sub(b"", msg.head), line)
                self._stream.store(subject, head, msg.data)

    def _stored(self, _: Msg) -> None:
        if not self._is_due:
            self._is_due = True
            self._server.later(_COPY_S, self.copy)
