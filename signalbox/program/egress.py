"""Rules for outgoing calls, so that a caller's URL cannot reach the deployment's own network (SSRF).

They are for code that calls an address given by others, webhooks first. :func:`judge` looks at the URL alone.
:func:`resolve` looks every address up **once**, checks **all** of them and names the one to connect to: connecting to
the name instead resolves it a second time, and an attacker's name server answers differently then (DNS rebinding).
Redirects are not followed; each would have to be judged anew. An operator may allow private networks: what lies in them
is called under any name, on any port and without TLS too, and a name that leads there and elsewhere is refused. Source:
spec of the guarantees, 4.8; OWASP API7.
"""

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from signalbox.program.errors import InvalidRequest, Unavailable

PORTS: Final = frozenset({443, 8443})
PORTS_PLAIN: Final = frozenset({80, 8080})
_LONGEST: Final = 2048
_SCHEME: Final = "The URL must begin with https://."
_RESOLVE_S: Final = 3.0
_NAME: Final = re.compile(r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]\Z")
"""A public name: small letters, at least one dot, a last label that is no number."""
_INNER_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?\Z"
)
"""A name in a private network: a single label too, no number."""
_INNER: Final = (
    ".local",
    ".internal",
    ".localhost",
    ".home.arpa",
    ".lan",
    ".intranet",
    ".corp",
    ".onion",
    ".test",
    ".invalid",
)

_BLOCKED: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "100.64.0.0/10",  # carriers' NAT, and clouds' own services behind it
        "169.254.0.0/16",  # link-local: clouds' metadata
        "192.0.0.0/24",
        "192.88.99.0/24",  # protocol assignments, 6to4 relays
        "198.18.0.0/15",  # benchmarks
        "224.0.0.0/4",
        "240.0.0.0/4",
        "64:ff9b::/96",
        "64:ff9b:1::/48",  # NAT64: an IPv4 address in disguise
        "2002::/16",
        "2001::/23",  # 6to4, Teredo and other tunnels
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]
Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""Name and port to addresses as text; every one the resolver knows."""


class Destination(NamedTuple):
    """Where to connect. address: checked, connect to this. host: for SNI and the ``Host`` header."""

    address: str
    port: int
    host: str
    path: str
    is_tls: bool


def networks(texts: Sequence[str]) -> Networks:
    """The networks that CIDRs name. Raises ``ValueError``."""
    return [ipaddress.ip_network(text) for text in texts]


def judge(url: str, *, allow_plain: bool = False, allowed: Networks = ()) -> SplitResult:
    """The URL's parts, if it may be called as far as its text tells. Raises :class:`InvalidRequest` with the reason.

    allow_plain: http too, on its own ports; for development. allowed: private networks that may be called: with any of
    them a name's scheme, port and form are judged with its addresses, by :func:`resolve`.
    """
    if len(url) > _LONGEST or any(c <= " " or c == "\\" or c > "~" for c in url):
        raise InvalidRequest("The URL holds characters a URL must not, or is too long.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest("The URL is malformed.") from error
    if parts.scheme not in {"http", "https"}:
        raise InvalidRequest(_SCHEME)
    if "@" in parts.netloc or "#" in url:
        raise InvalidRequest("The URL must hold neither a user nor a fragment.")
    host = parts.hostname or ""
    literal = _literal(host)
    if port == 0 or not host or ("[" in parts.netloc and literal is None):
        raise InvalidRequest("The URL is malformed.")
    may_be_inner = _is_in(literal, allowed) if literal is not None else bool(allowed and _INNER_NAME.match(host))
    if not may_be_inner:
        _judge_public(parts, allow_plain=allow_plain)
    return parts


def host_of(url: str) -> str:
    """The host that a URL names, in small letters; empty if it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


async def resolve(url: str, *, lookup: Lookup, allow_plain: bool = False, allowed: Networks = ()) -> Destination:
    """Judge a URL and pin its address: one lookup, every address of it checked, the first one named.

    lookup: the resolver. Raises :class:`InvalidRequest` if the URL or any address of its
    name may not be called, :class:`Unavailable` if the name has none now.
    """
    parts = judge(url, allow_plain=allow_plain, allowed=allowed)
    host = parts.hostname or ""
    port = parts.port or _usual(parts)
    literal = _literal(host)
    if literal is not None:
        found: Sequence[str] = [str(literal)]
    else:
        try:
            async with asyncio.timeout(_RESOLVE_S):
                found = await lookup(host, port)
        except (OSError, TimeoutError, UnicodeError) as error:
            raise Unavailable(f"The name {host} has no address now.") from error
    if not found:
        raise Unavailable(f"The name {host} has no address now.")
    if not all(_is_in(_literal(text), allowed) for text in found):
        _judge_public(parts, allow_plain=allow_plain)
        for text in found:
            check_address(text)
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    return Destination(found[0], port, host, path, parts.scheme == "https")


def check_address(text: str) -> Address:
    """The address, if it is a public one. Raises :class:`InvalidRequest` without saying what lies there."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise InvalidRequest("The URL leads to something that is no address.") from error
    if not is_public(address):
        raise InvalidRequest("The URL leads to an address that must not be called from here.")
    return address


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet; one address in disguise of another counts as both."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None or address.ipv4_mapped is not None:
            return False
        if int(address) >> 32 == 0:  # ::a.b.c.d, deprecated
            return False
    if any(address.version == net.version and address in net for net in _BLOCKED):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _judge_public(parts: SplitResult, *, allow_plain: bool) -> None:
    """Raise :class:`InvalidRequest` for a scheme, a port or a host that is for private networks only."""
    if parts.scheme != "https" and not allow_plain:
        raise InvalidRequest(_SCHEME)
    allowed = PORTS | PORTS_PLAIN if allow_plain else PORTS
    if (parts.port if parts.port is not None else _usual(parts)) not in allowed:
        raise InvalidRequest(f"The URL's port must be one of {', '.join(map(str, sorted(allowed)))}.")
    host = parts.hostname or ""
    literal = _literal(host)
    if literal is not None:
        check_address(str(literal))
        if isinstance(literal, ipaddress.IPv4Address) and host != str(literal):
            raise InvalidRequest("The URL's address is written in an unusual way.")
    elif not _NAME.match(host) or host.endswith(_INNER):
        raise InvalidRequest("The URL's host is not a public name.")


def _is_in(address: "Address | None", allowed: Networks) -> bool:
    return address is not None and any(address.version == net.version and address in net for net in allowed)


def _literal(host: str) -> "Address | None":
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _usual(parts: SplitResult) -> int:
    return 443 if parts.scheme == "https" else 80
