"""What is kept of an input that takes runners down."""

from signalbox.wire.messages import Doc


class Poison(Doc, frozen=True, kw_only=True):
    """KV ``poison``: an input that ended the runner until it had no strikes left. Key: model, version and hash.

    job: the one it was found by. error: what its last run ended with.
    """

    model: str
    version: int = 0
    sha256: str
    job: str
    error: str = ""
    since: float = 0.0
