"""Tokens for the events of one job: whose they are, and for how long."""

import pytest

from gateway_plugin.admission.eventtokens import EventTokens
from signalbox.program.errors import Unauthorized
from signalbox.wire.keydocs import ApiKey
from tests.unit.gateway_plugin.admission.test_gateway_keyring import PEPPER, Known, keyring, made

JOB = "01a225c9-eab0-733b-adaa-0ed578a52a3e"
_, MINE = made()


def tokens(*, now: float = 1000.0, peppers: tuple[str, ...] = (PEPPER,), stored: ApiKey = MINE) -> EventTokens:
    return EventTokens(peppers, keyring(Known(stored), now=now), wall=lambda: now)


def test_a_token_is_good_for_its_key_for_an_hour() -> None:
    url = tokens().url(JOB, MINE)
    assert url.startswith(f"/v1/jobs/{JOB}/events?token=sbe_{MINE.id}_4600_")
    assert tokens(now=4599).key_of(url) is MINE
    with pytest.raises(Unauthorized, match="expired"):
        tokens(now=4600).key_of(url)


def test_every_plugin_takes_it_also_while_the_pepper_is_rotated() -> None:
    url = tokens().url(JOB, MINE)
    assert tokens(peppers=("new", PEPPER)).key_of(url) is MINE
    with pytest.raises(Unauthorized):
        tokens(peppers=("new",)).key_of(url)


@pytest.mark.parametrize(
    "change", [("3e/events", "3f/events"), ("_4600_", "_9999_"), (MINE.id, "0" * 12), ("sbe_", "")]
)
def test_a_token_says_for_what_it_is_and_cannot_be_changed(change: tuple[str, str]) -> None:
    with pytest.raises(Unauthorized, match=r"urls\.events"):
        tokens().key_of(tokens().url(JOB, MINE).replace(*change))


def test_it_stands_anywhere_in_the_query_and_counts_at_no_other_path() -> None:
    url = tokens().url(JOB, MINE)
    path, _, query = url.partition("?")
    assert tokens().key_of(f"{path}?a=1&{query}&b=2") is MINE
    for other in (f"/v1/jobs/{JOB}?{query}", f"/v1/jobs/{JOB}/result?{query}", path, f"{path}?xtoken=1", "/"):
        assert tokens().key_of(other) is None


def test_the_key_behind_it_must_still_be_good() -> None:
    url = tokens().url(JOB, MINE)
    ended = made(id=MINE.id, revoked_at=1.0)[1]
    with pytest.raises(Unauthorized, match="revoked"):
        tokens(stored=ended).key_of(url)
