"""How connections are counted, and whose they are."""

import resource

import pytest
from msgspec.structs import replace

from signalbox.front.bounds import HttpBounds, raise_descriptors
from signalbox.front.connections import ADDRESS, FULL, QUIET_S, Connections, share_of
from signalbox.program.errors import Misconfigured


def test_an_address_takes_its_share_and_others_still_come_in() -> None:
    held = Connections(most=4, per_address=2)
    assert [held.enter("a", 1.0) for _ in range(3)] == ["", "", ADDRESS]
    assert [held.enter("b", 2.0) for _ in range(2)] == ["", ""]
    assert held.enter("c", 3.0) == FULL
    report = held.refused_connections()
    assert report is not None
    assert (report.since, report.open, report.bound) == (1.0, 4, 4)
    assert report.refused == {ADDRESS: 1, FULL: 1}
    assert report.address == "a"
    held.leave("a")
    assert held.enter("c", 4.0) == ""


def test_refusing_connections_ends_after_a_quiet_minute_and_is_told_once() -> None:
    held = Connections(most=1, per_address=0)
    held.enter("a", 1.0)
    held.enter("b", 10.0)
    assert held.calmed(9.0 + QUIET_S) is None
    ended = held.calmed(10.0 + QUIET_S)
    assert ended is not None
    assert ended.refused == {FULL: 1}
    assert held.calmed(11.0 + QUIET_S) is None
    assert held.refused_connections() is None


def test_without_a_share_an_address_may_have_them_all() -> None:
    held = Connections(most=3, per_address=0)
    assert [held.enter("a", 1.0) for _ in range(4)] == ["", "", "", FULL]


@pytest.mark.parametrize(
    ("peer", "share"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("::ffff:10.0.0.1", 5, 0, 0), "10.0.0.1"),
        (("2001:db8:1:2:3::4", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_connection_counts_for_its_network(peer: object, share: str) -> None:
    assert share_of(peer) == share


def test_connections_must_fit_the_limit_of_descriptors() -> None:
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        raise_descriptors(HttpBounds(), "SIGNALBOX_GATEWAY_HTTP_CONNECTIONS")
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        if hard != resource.RLIM_INFINITY:
            with pytest.raises(Misconfigured, match=f"the limit is {hard}"):
                raise_descriptors(replace(HttpBounds(), http_connections=hard), "X")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
