"""Which URLs a webhook may have, as far as their text tells. What a name leads to is judged at each call."""

from urllib.parse import SplitResult

from django.conf import settings

from signalbox.program import egress


def judge(url: str) -> SplitResult:
    """The URL's parts. Raises :class:`InvalidRequest` with the reason."""
    console = settings.CONSOLE
    return egress.judge(url, allow_plain=console.webhook_plain, allowed=egress.networks(console.webhook_networks))
