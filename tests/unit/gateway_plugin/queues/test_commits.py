"""Codes of negative commits, and windows."""

import pytest

from gateway_plugin.queues.watching.commits import require_code
from gateway_plugin.queues.watching.openwatch import Watch
from signalbox.program.errors import InvalidRequest


@pytest.mark.parametrize("code", ["", "Shutdown", "TooHard", "A", "42", "1" * 20, "A" * 20])
def test_codes_are_words_in_camel_case_or_digits(code: str) -> None:
    require_code(code)


@pytest.mark.parametrize("code", ["shutdown", "Too Hard", "Too_Hard", "1" * 21, "A" * 21, "1a", "Ä", "Shutdown\n"])
def test_other_codes_are_refused(code: str) -> None:
    with pytest.raises(InvalidRequest, match="CamelCase"):
        require_code(code)


@pytest.mark.parametrize("window", [-1, 0, 1025])
def test_a_window_has_bounds_unless_it_is_ignored(window: int) -> None:
    with pytest.raises(InvalidRequest, match="1 to 1024"):
        Watch(window=window).require_sound()
    Watch(window=window, is_auto_commit=True).require_sound()
    Watch(window=1024).require_sound()
