"""What we may be made to call: the corpus of disguises, and a name that changes its address between two lookups."""

import ipaddress
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.program import egress
from signalbox.program.errors import InvalidRequest, Unavailable

PUBLIC = "93.184.215.14"

REFUSED = (
    # schemes
    "http://hooks.example.com/",
    "ftp://hooks.example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_x",
    "//hooks.example.com/",
    "hooks.example.com",
    "javascript:alert(1)",
    "https:///path",
    "",
    # this machine, by every name it has
    "https://127.0.0.1/",
    "https://127.1/",
    "https://0.0.0.0/",
    "https://0/",
    "https://localhost/",
    "https://LOCALHOST/",
    "https://localhost./",
    "https://foo.localhost/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[0:0:0:0:0:ffff:7f00:1]/",
    "https://[::127.0.0.1]/",
    # numbers a resolver takes for addresses
    "https://2130706433/",
    "https://0x7f000001/",
    "https://017700000001/",
    "https://0x7f.1/",
    "https://127.0.0.1./",
    "https://0177.0.0.1/",
    "https://192.168.1/",
    "https://1.2.3/",
    "https://010.8.8.8/",
    # private networks, carriers, metadata
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://192.168.0.1/",
    "https://100.64.0.1/",
    "https://169.254.169.254/",
    "https://[fd00:ec2::254]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[64:ff9b::a9fe:a9fe]/",
    "https://[2002:7f00:1::]/",
    "https://[2001:0:53aa:64c:0:0:80ff:fffe]/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    "https://[ff02::1]/",
    "https://192.0.2.1/",
    "https://metadata.google.internal/",
    # users, ports, fragments, characters
    "https://hooks.example.com@127.0.0.1/",
    "https://user:pass@hooks.example.com/",
    "https://hooks.example.com:22/",
    "https://hooks.example.com:6379/",
    "https://hooks.example.com:99999/",
    "https://hooks.example.com:x/",
    "https://hooks.example.com:0/",
    "https://hooks.example.com/#@127.0.0.1",
    "https://hooks.example.com\\@127.0.0.1/",
    "https://hooks.example.com /",
    "https://hooks.example.com/\r\nHost: x",
    "https://hooks.example.com/\t",
    "https://höoks.example.com/",
    "https://127。0。0。1/",
    "https://①②⑦.0.0.1/",
    "https://[::1",
    "https://[hooks.example.com]/",
    "https://nodots/",
    "https://a..b/",
    "https://-a.example.com/",
    "https://" + "a" * 64 + ".example.com/",
    "https://hooks.example.com/" + "x" * 2048,
    "https://printer.local/",
    "https://a.test/",
)


@pytest.mark.parametrize("url", REFUSED)
def test_a_url_that_leads_inside_or_nowhere_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        egress.judge(url)
    assert "127.0.0.1" not in refused.value.public_message


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(set(REFUSED)) == len(REFUSED) >= 60


@pytest.mark.parametrize(
    ("url", "port", "path"),
    [
        ("https://hooks.example.com", 443, "/"),
        ("https://hooks.example.com:8443/in?x=1", 8443, "/in?x=1"),
        ("https://HOOKS.Example.com/A%20b", 443, "/A%20b"),
        (f"https://{PUBLIC}/", 443, "/"),
        ("https://[2606:4700::1111]/x", 443, "/x"),
        ("https://xn--hks-sna.example.com/", 443, "/"),
    ],
)
async def test_a_public_url_is_pinned_to_an_address_and_keeps_its_name(url: str, port: int, path: str) -> None:
    target = await egress.resolve(url, lookup=answers([PUBLIC]))
    assert (target.port, target.path, target.is_tls) == (port, path, True)
    assert target.address in {PUBLIC, "2606:4700::1111"}
    assert target.host in url.lower()


def answers(*lists: Sequence[str]) -> egress.Lookup:
    """A resolver that gives the next list each time it is asked."""
    left = list(lists)

    async def lookup(host: str, port: int) -> Sequence[str]:
        return left.pop(0)

    return lookup


@pytest.mark.parametrize(
    "found",
    [
        ["10.0.0.1"],
        [PUBLIC, "127.0.0.1"],
        [PUBLIC, "::1"],
        ["::ffff:169.254.169.254"],
        ["64:ff9b::7f00:1"],
        ["fe80::1%eth0"],
        ["not an address"],
    ],
)
async def test_a_name_with_one_inner_address_among_its_addresses_is_refused(found: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        await egress.resolve("https://hooks.example.com/", lookup=answers(found))


async def test_a_name_is_looked_up_once_so_that_rebinding_comes_too_late() -> None:
    lookup = answers([PUBLIC], ["127.0.0.1"])
    target = await egress.resolve("https://rebind.example.com/", lookup=lookup)
    assert (target.address, target.host) == (PUBLIC, "rebind.example.com")
    with pytest.raises(InvalidRequest):  # and a second call is judged anew
        await egress.resolve("https://rebind.example.com/", lookup=lookup)


async def test_a_name_without_an_address_is_unavailable_and_not_forbidden() -> None:
    async def away(host: str, port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    for lookup in (away, answers([])):
        with pytest.raises(Unavailable):
            await egress.resolve("https://gone.example.com/", lookup=lookup)


def test_plain_http_is_for_development_only() -> None:
    assert egress.judge("http://hooks.example.com/", allow_plain=True).scheme == "http"
    assert egress.judge("http://hooks.example.com:8080/", allow_plain=True).port == 8080
    with pytest.raises(InvalidRequest):
        egress.judge("http://127.0.0.1/", allow_plain=True)


@given(st.ip_addresses())
def test_what_is_called_public_is_global_and_in_no_blocked_network(address: egress.Address) -> None:
    if egress.is_public(address):
        assert address.is_global
        assert not address.is_private
        assert not address.is_loopback
        assert not address.is_link_local
        assert not address.is_multicast


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_dressed_as_ipv6_is_never_public(address: ipaddress.IPv4Address) -> None:
    for prefix in ("::ffff:", "::", "64:ff9b::"):
        assert not egress.is_public(ipaddress.IPv6Address(f"{prefix}{address}"))
    assert not egress.is_public(ipaddress.IPv6Address((0x2002 << 112) | (int(address) << 80)))


@given(st.text(max_size=80))
def test_no_text_makes_the_judge_fail_otherwise_than_by_refusing(text: str) -> None:
    try:
        egress.judge(text)
        egress.judge(f"https://{text}/")
    except InvalidRequest:
        pass


PRIVATE = egress.networks(["10.20.0.0/16", "fd12::/64"])


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://10.20.0.7:9000/in", "10.20.0.7"),
        ("https://[fd12::7]:9000/in", "fd12::7"),
        ("https://receiver:9000/in", "10.20.0.7"),
        ("http://receiver/in", "10.20.0.7"),
        ("https://hooks.svc.cluster.local:9000/in", "10.20.0.7"),
        ("https://hooks.example.com/in", PUBLIC),
    ],
)
async def test_an_allowed_network_is_called_under_any_name_and_port(url: str, found: str) -> None:
    target = await egress.resolve(url, allowed=PRIVATE, lookup=answers([found]))
    assert (target.address, target.path) == (found, "/in")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://receiver:9000/", [PUBLIC]),
        ("https://receiver/", [PUBLIC]),
        ("http://hooks.example.com/", [PUBLIC]),
        ("https://hooks.example.com:9000/", [PUBLIC]),
        ("https://hooks.svc.cluster.local/", [PUBLIC]),
        ("https://hooks.example.com/", ["10.21.0.7"]),
        ("https://hooks.example.com/", ["10.20.0.7", "10.21.0.7"]),
        ("https://hooks.example.com/", ["10.20.0.7", PUBLIC]),
        ("https://hooks.example.com/", ["::ffff:10.20.0.7"]),
        ("https://localhost/", ["127.0.0.1"]),
    ],
)
async def test_an_allowed_network_opens_nothing_beside_it(url: str, found: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        await egress.resolve(url, allowed=PRIVATE, lookup=answers(found))


INNER_NAMES = {
    "http://hooks.example.com/",
    "https://localhost/",
    "https://LOCALHOST/",
    "https://foo.localhost/",
    "https://metadata.google.internal/",
    "https://hooks.example.com:22/",
    "https://hooks.example.com:6379/",
    "https://nodots/",
    "https://printer.local/",
    "https://a.test/",
}
"""Of the corpus; with an allowed network their addresses decide."""


@pytest.mark.parametrize("url", REFUSED)
async def test_the_corpus_is_refused_beside_an_allowed_network_too(url: str) -> None:
    with pytest.raises(InvalidRequest):
        await egress.resolve(url, allowed=PRIVATE, lookup=answers([PUBLIC]))
    if url not in INNER_NAMES:
        with pytest.raises(InvalidRequest):
            egress.judge(url, allowed=PRIVATE)
