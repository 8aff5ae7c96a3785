"""What a program tells of what it has refused."""

from signalbox.wire.messages import Doc


class RefusedConnections(Doc, frozen=True, kw_only=True):
    """``Sb-Front``, on ``used.keys``: a listener that turns connections away.

    name: the program's instance. open, bound: connections, and how many there may be. refused: how many were turned
    away since ``since``, by reason. address: the last one that had too many, if one had.
    """

    name: str = ""
    since: float
    open: int
    bound: int
    refused: dict[str, int]
    address: str = ""


class RefusedInput(Doc, frozen=True, kw_only=True):
    """On ``refused.input``: an input that was stored for a job which ``JOBS`` refused, and which is not queued now.

    subject, last_seq: of its chunks in ``INPUTS``. A later try of the same submission stores its own, above them.
    """

    subject: str
    last_seq: int
