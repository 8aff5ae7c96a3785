"""Times in words: the server says at first what the browser's script goes on with."""

from datetime import timedelta

import pytest
from django.utils import timezone

from console.pages.formats import relative


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (1, "now"),
        (12.2, "12 s ago"),
        (100, "2 min ago"),
        (89 * 60, "89 min ago"),
        (2 * 3600 + 5 * 60, "2 h 05 min ago"),
        (96 * 3600, "4 d ago"),
        (-3 * 86_400 - 60, "in 3 d"),
        (-30.5, "in 30 s"),
    ],
)
def test_a_time_is_said_from_now(ago: float, words: str) -> None:
    assert relative(timezone.now() - timedelta(seconds=ago)) == words
