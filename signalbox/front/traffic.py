"""Bytes that each front takes from its clients and sends them: what the network of a machine of the edge carries."""

from typing import Final

from signalbox.program import metrics

BYTES: Final = metrics.counter(
    "front_bytes",
    "Bytes from (received) and to (sent) the clients of a front, as they are inside TLS: `edge`, `upstream`, `hooks` "
    "(the gateway's calls; of the transport `grpc` messages alone), `grpc` (messages alone), `console`.",
    "front",
    "direction",
)
EDGE: Final = "edge"
UPSTREAM: Final = "upstream"
HOOKS: Final = "hooks"
GRPC: Final = "grpc"
CONSOLE: Final = "console"


class Traffic:
    """Counts the bytes of one front. received, sent: called with a number of bytes."""

    __slots__ = ("received", "sent")

    def __init__(self, front: str) -> None:
        self.received = BYTES.labels(front, "received").inc
        self.sent = BYTES.labels(front, "sent").inc
