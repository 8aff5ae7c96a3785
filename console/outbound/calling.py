"""Which URLs a webhook may have, as far as their text tells. What a name leads to is judged at each call."""

from urllib.parse import SplitResult

from signalbox.program import egress


def judge(url: str) -> SplitResult:
    """The URL's parts. Raises :class:`InvalidRequest` with the reason."""
    return egress.judge(url)
