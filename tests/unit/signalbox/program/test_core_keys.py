"""API keys: whole or refused, and equal only to themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.program import keys
from signalbox.program.errors import Unauthorized


def test_a_minted_key_is_whole_and_names_its_id() -> None:
    text, kid = keys.mint("test")
    assert keys.parse(text) == keys.KeyParts("test", kid, text)
    assert len(text) == len("sbx_test_") + 12 + 1 + 43 + 6
    assert keys.mint()[0] != keys.mint()[0]


@given(place=st.integers(0, 69), char=st.sampled_from(keys.ALPHABET))
def test_one_wrong_character_is_refused_offline(place: int, char: str) -> None:
    text = "sbx_live_000000000000_0000000000000000000000000000000000000000000"
    whole = text + keys._checksum(text)
    broken = whole[:place] + char + whole[place + 1 :]
    if broken != whole:
        with pytest.raises(Unauthorized):
            keys.parse(broken)


@pytest.mark.parametrize("text", ["", "sbx", "Bearer x", "sbx_LIVE_" + "0" * 62, "\N{SNOWMAN}" * 70, "0" * 10_000])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Unauthorized):
        keys.parse(text)


def test_a_digest_needs_the_same_key_and_the_same_pepper() -> None:
    text, _ = keys.mint()
    stored = keys.digest("pepper", text)
    assert len(stored) == 64
    assert keys.matches("pepper", text, stored)
    assert not keys.matches("other", text, stored)
    assert not keys.matches("pepper", keys.mint()[0], stored)


def test_an_environment_must_fit_the_form() -> None:
    with pytest.raises(ValueError, match="small letters"):
        keys.mint("Production")
