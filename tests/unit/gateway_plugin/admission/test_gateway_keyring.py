"""Who is let in, and what happens when the plugin cannot tell."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway_plugin.admission.addresses import before_front, client_address, forwarded_address
from gateway_plugin.admission.failures import Failures
from gateway_plugin.admission.keyring import Keyring
from gateway_plugin.admission.usage import KeyCounts
from signalbox.bus.table import Table
from signalbox.program import keys
from signalbox.program.errors import LimitExceeded, Unauthorized, Unavailable
from signalbox.wire.keydocs import ApiKey

PEPPER = "pepper"


class Known(Table[ApiKey]):
    """A table that is as old as it says, and follows no bucket."""

    def __init__(self, *stored: ApiKey, age_s: float = 0.0) -> None:
        self._items = {key.id: key for key in stored}
        self.get = self._items.get
        self._age_s = age_s

    @property
    def synced_age_s(self) -> float:
        return self._age_s

    def replace(self, changed: ApiKey) -> None:
        self._items[changed.id] = changed

    def age_by(self, seconds: float) -> None:
        self._age_s += seconds


def made(**fields: object) -> tuple[str, ApiKey]:
    text, kid = keys.mint("test")
    known = {"id": kid, "account_id": kid, "hmac": keys.digest(PEPPER, text)}
    return text, ApiKey(**{**known, **fields})  # type: ignore[arg-type]


def keyring(
    table: Known, *, now: float = 1000.0, peppers: tuple[str, ...] = (PEPPER,), counts: KeyCounts | None = None
) -> Keyring:
    return Keyring(table, peppers, stale_s=15.0, counts=counts, wall=lambda: now)


def test_a_good_key_is_its_own() -> None:
    text, stored = made()
    assert keyring(Known(stored)).check(text) is stored
    assert keyring(Known(stored)).by_id(stored.id) is stored


def test_a_key_hashed_under_the_pepper_before_is_still_taken() -> None:
    text, stored = made()
    assert keyring(Known(stored), peppers=("new", PEPPER)).check(text) is stored
    with pytest.raises(Unauthorized):
        keyring(Known(stored), peppers=("new",)).check(text)


@pytest.mark.parametrize(("now", "is_let_in"), [(999.0, True), (1000.0, False), (1001.0, False)])
def test_a_key_ends_at_its_instant(now: float, is_let_in: bool) -> None:
    text, stored = made(expires_at=1000.0)
    ring = keyring(Known(stored), now=now)
    if is_let_in:
        assert ring.check(text) is stored
    else:
        with pytest.raises(Unauthorized):
            ring.check(text)


def test_an_outdated_table_is_an_outage_and_never_a_wrong_key() -> None:
    text, stored = made()
    for ring in (keyring(Known(stored, age_s=16.0)), keyring(Known(age_s=16.0))):
        with pytest.raises(Unavailable) as caught:
            ring.check(text)
        assert caught.value.retry_after_s is not None
        with pytest.raises(Unavailable):
            ring.by_id(stored.id)


def test_unknown_revoked_and_wrong_keys_are_refused_in_the_same_words() -> None:
    text, stored = made(revoked_at=1.0)
    other, _ = made()
    stolen = keys.parse(other).text.replace(keys.parse(other).kid, stored.id)
    words = set()
    for given_text in (text, other):
        with pytest.raises(Unauthorized) as caught:
            keyring(Known(stored)).check(given_text)
        words.add(caught.value.public_message)
    with pytest.raises(Unauthorized):
        keyring(Known(stored)).check(stolen)
    assert len(words) == 1


def test_whatever_is_wrong_with_a_key_is_said_in_the_same_words_after_the_same_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, stored = made()
    revoked, its = made(revoked_at=1.0)
    unknown, _ = made()
    body = text[:22] + ("B" * 43 if text[22:65] != "B" * 43 else "C" * 43)
    wrong = body + keys._checksum(body)
    digests: list[str] = []
    digest = keys.digest

    def counted(pepper: str, text: str) -> str:
        digests.append(text)
        return digest(pepper, text)

    monkeypatch.setattr(keys, "digest", counted)
    ring = keyring(Known(stored, its), peppers=(PEPPER, "before"))
    words, work = set(), {}
    for given_text in ("", "sbx_", text[:-1], text + "x", wrong, unknown, revoked):
        digests.clear()
        with pytest.raises(Unauthorized) as caught:
            ring.check(given_text)
        words.add((caught.value.public_message, str(caught.value.facts)))
        work[given_text] = len(digests)
    assert len(words) == 1
    assert work[wrong] == work[unknown] == work[revoked] == 2


def test_an_address_that_guesses_is_held_back_and_a_right_key_from_it_is_not() -> None:
    text, stored = made()
    now = [0.0]
    ring = Keyring(
        Known(stored), (PEPPER,), stale_s=15.0, most_failures=3, wall=lambda: 1000.0, monotonic=lambda: now[0]
    )
    assert ring.check(text, "192.0.2.1") is stored
    for _ in range(3):
        with pytest.raises(Unauthorized):
            ring.check(made()[0], "192.0.2.1")
    with pytest.raises(LimitExceeded) as caught:
        ring.check(made()[0], "192.0.2.1")
    assert 0 < (caught.value.retry_after_s or 0) <= 60
    assert ring.check(text, "192.0.2.1") is stored
    with pytest.raises(Unauthorized):
        ring.check(made()[0], "192.0.2.2")
    now[0] = 60.0
    with pytest.raises(Unauthorized):
        ring.check(made()[0], "192.0.2.1")


@pytest.mark.parametrize(
    "address",
    [lambda _: "", lambda _: "192.0.2.1", lambda n: f"2001:db8::{n:x}", lambda n: f"forged {n}"],
    ids=["unknown", "one", "one /64", "forged"],
)
def test_guesses_with_ever_other_ids_are_held_back_and_right_keys_are_not(address: Callable[[int], str]) -> None:
    good, its = made()
    ended, dead = made(revoked_at=1.0)
    ring = Keyring(Known(its, dead), (PEPPER,), stale_s=15.0, wall=lambda: 1000.0)
    codes = Counter[str]()
    for number in range(2000):
        with pytest.raises((Unauthorized, LimitExceeded)) as caught:
            ring.check(made()[0], address(number))
        codes[caught.value.code] += 1
    assert codes == {"unauthorized": 60, "limit_exceeded": 1940}
    for text in (ended, good[:-1]):
        with pytest.raises(LimitExceeded):
            ring.check(text, address(0))
    assert ring.check(good, address(0)) is its


def test_guesses_at_one_key_are_held_back_and_its_owner_is_not() -> None:
    text, stored = made()
    ring = Keyring(Known(stored), (PEPPER,), stale_s=15.0, most_failures=3, wall=lambda: 1000.0)
    guesses = [f"sbx_test_{stored.id}_" + letter * 43 for letter in "ABCDE"]
    outcomes = []
    for guess in guesses:
        with pytest.raises((Unauthorized, LimitExceeded)) as caught:
            ring.check(guess + keys._checksum(guess))
        outcomes.append(caught.value.code)
    assert outcomes == ["unauthorized"] * 3 + ["limit_exceeded"] * 2
    assert ring.check(text) is stored


def test_failures_are_counted_for_a_bounded_number_of_names() -> None:
    failures = Failures(limit=2, monotonic=lambda: 0.0)
    for number in range(20_000):
        failures.count(str(number))
    assert len(failures._windows) == 10_000
    failures.count("")
    assert failures.wait_s("") == 0


def test_every_key_that_is_let_in_is_noted_as_used() -> None:
    text, stored = made()
    counts = KeyCounts()
    ring = Keyring(Known(stored), (PEPPER,), stale_s=15.0, counts=counts, wall=lambda: 1000.0)
    with pytest.raises(Unauthorized):
        ring.check(made()[0])
    ring.check(text)
    ring.check(text)
    assert list(counts.taken()) == [([stored.id], {}, {})]


def test_calls_with_a_right_key_that_has_ended_or_comes_from_elsewhere_are_counted_as_refused() -> None:
    text, ended = made(expires_at=999.0)
    disabled = made(is_disabled=True)
    _, elsewhere = made(networks=("192.0.2.0/24",))
    counts = KeyCounts()
    ring = keyring(Known(ended, disabled[1], elsewhere), counts=counts)
    for shown in (text, disabled[0], made()[0], "sbx_nonsense"):
        with pytest.raises(Unauthorized):
            ring.check(shown)
    with pytest.raises(Unauthorized):
        ring.by_id(ended.id)
    with pytest.raises(Unauthorized):
        ring.require_address(elsewhere, "10.0.0.1")
    [(_, calls, refused)] = counts.taken()
    assert calls == {ended.id: 2, disabled[1].id: 1, elsewhere.id: 1}
    assert refused == {
        ended.id: {"unauthorized:ended": 2},
        disabled[1].id: {"unauthorized:ended": 1},
        elsewhere.id: {"unauthorized:address": 1},
    }


def test_a_report_is_bounded_in_keys_and_reasons_and_loses_no_call() -> None:
    counts = KeyCounts()
    for number in range(1200):
        counts.calls[f"k{number}"] += 1
    for reason in range(40):
        counts.calls["k0"] += 1
        counts.refuse_for("k0", f"reason:{reason}")
    counts.refuse("k1", ValueError())
    counts.refuse("k1", LimitExceeded("Slow down.", bound="rate"))
    parts = list(counts.taken())
    assert [len(used) for used, _, _ in parts] == [500, 500, 200]
    assert sum(sum(calls.values()) for _, calls, _ in parts) == 1240
    refused = {kid: reasons for _, _, found in parts for kid, reasons in found.items()}
    assert (len(refused["k0"]), refused["k0"]["other"], sum(refused["k0"].values())) == (17, 24, 40)
    assert refused["k1"] == {"internal": 1, "limit_exceeded:rate": 1}
    assert list(counts.taken()) == []


@pytest.mark.parametrize(
    ("networks", "address", "is_let_in"),
    [
        ((), "", True),
        ((), "192.0.2.1", True),
        (("192.0.2.0/24",), "192.0.2.255", True),
        (("192.0.2.0/24",), "192.0.3.0", False),
        (("192.0.2.0/24",), "", False),
        (("192.0.2.0/24",), "::ffff:192.0.2.9", True),
        (("10.0.0.0/8", "2001:db8::/32"), "2001:db8::1", True),
        (("nonsense",), "192.0.2.1", False),
    ],
)
def test_a_key_limited_to_networks_is_good_there_and_nowhere_else(
    networks: tuple[str, ...], address: str, is_let_in: bool
) -> None:
    _, stored = made(networks=networks)
    ring = keyring(Known(stored))
    if is_let_in:
        ring.require_address(stored, address)
    else:
        with pytest.raises(Unauthorized):
            ring.require_address(stored, address)


@pytest.mark.parametrize(
    ("headers", "proxies", "address"),
    [
        ({"X-Client-Addr": "192.0.2.1"}, 0, "192.0.2.1"),
        ({"X-Client-Addr": "10.1.1.1", "X-Real-Ip": "10.1.1.1"}, 0, ""),
        ({"X-Client-Addr": "10.1.1.1", "X-Forwarded-For": "10.1.1.1"}, 0, ""),
        ({"X-Client-Addr": "10.0.0.5", "X-Forwarded-For": "10.1.1.1, 192.0.2.1"}, 1, "192.0.2.1"),
        ({"X-Forwarded-For": "10.1.1.1, 192.0.2.1, 10.0.0.5"}, 2, "192.0.2.1"),
        ({"X-Forwarded-For": "192.0.2.1", "X-Real-Ip": "10.1.1.1"}, 1, "192.0.2.1"),
        ({"X-Forwarded-For": "192.0.2.1"}, 2, ""),
        ({"X-Forwarded-For": "unknown"}, 1, ""),
        ({}, 0, ""),
        ({}, 1, ""),
    ],
)
def test_an_address_is_believed_only_from_those_we_trust(headers: dict[str, str], proxies: int, address: str) -> None:
    assert client_address(headers, proxies) == address
    assert forwarded_address(headers, proxies) == (address if proxies else "")
    sent = headers.get("X-Forwarded-For")
    handed_on = headers | {"X-Forwarded-For": f"{sent}, 10.0.0.9" if sent else "10.0.0.9"}
    assert before_front(handed_on) == headers


def test_a_key_proven_once_is_refused_as_soon_as_its_record_changes() -> None:
    text, stored = made()
    table = Known(stored)
    ring = keyring(table)
    assert ring.check(text) is stored
    assert ring.check(text) is stored
    table.replace(replace(stored, revoked_at=1.0))
    with pytest.raises(Unauthorized):
        ring.check(text)
    table.replace(replace(stored, hmac="0" * 64))
    with pytest.raises(Unauthorized):
        ring.check(text)
    table.age_by(16.0)
    with pytest.raises(Unavailable):
        ring.check(text)


@given(st.integers(0, 76), st.characters(codec="ascii"))
def test_a_mutated_key_is_refused(place: int, char: str) -> None:
    text, stored = made()
    place %= len(text)
    mutated = text[:place] + char + text[place + 1 :]
    if mutated == text:
        return
    with pytest.raises(Unauthorized):
        keyring(Known(stored)).check(mutated)
