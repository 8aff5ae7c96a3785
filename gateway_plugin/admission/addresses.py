"""The address that a request came from, as far as a trusted proxy or the front reports it.

The front tells an address (``X-Client-Addr``), but it believes ``X-Real-Ip`` and ``X-Forwarded-For``, which any
client may send. So with no proxy in front of it such a header makes the address unknown; with ``trusted_proxies``
of them the address is the one that the outermost of these saw: that many entries from the end.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from signalbox.program.errors import Misconfigured

FRONT_S_WORD: Final = "X-Client-Addr"
_FORWARDED: Final = "X-Forwarded-For"
_HOST_BITS: Final = 64
_CLIENT_S_WORDS: Final = (_FORWARDED, "X-Real-Ip")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def forwarded_address(headers: Mapping[str, str], trusted_proxies: int) -> str:
    """The address that trusted proxies report, which is known before the front reports its own. "" = unknown."""
    if not trusted_proxies:
        return ""
    entries = headers.get(_FORWARDED, "").split(",")
    if len(entries) < trusted_proxies:
        return ""
    return written(entries[-trusted_proxies].strip())


def client_address(headers: Mapping[str, str], trusted_proxies: int) -> str:
    """The address of a request that has passed the front; "" = unknown."""
    if trusted_proxies:
        return forwarded_address(headers, trusted_proxies)
    if any(name in headers for name in _CLIENT_S_WORDS):
        return ""
    return written(headers.get(FRONT_S_WORD, ""))


def before_front(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers of a request that the front has handed on, without its own peer at the end of X-Forwarded-For."""
    sent = headers.get(_FORWARDED, "").rpartition(",")[0]
    others = {name: value for name, value in headers.items() if name != _FORWARDED}
    return others | {_FORWARDED: sent} if sent else others


def written(text: str) -> str:
    """An address in its one written form, an IPv4 one that IPv6 maps as itself; "" = it is none."""
    found = _address(text)
    return str(found) if found is not None else ""


def is_within(address: str, networks: Sequence[str]) -> bool:
    """Whether an address lies in one of these blocks. An unknown address lies in none, and so does none of what
    cannot be read as a block: a key that was limited by mistake must not become one without limits.
    """
    found = _address(address)
    return found is not None and any(network is not None and found in network for network in map(_network, networks))


def neighbourhood(address: str) -> str:
    """The addresses counted as one caller: an IPv4 address, or the /64 of an IPv6 one; "" = unknown."""
    found = _address(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, _HOST_BITS), strict=False))
    return str(found) if found is not None else ""


def network(text: str) -> str:
    """A CIDR block, or an address, in its one written form. Raises :class:`Misconfigured` for anything else."""
    try:
        return str(ipaddress.ip_network(text.strip(), strict=False))
    except ValueError as error:
        raise Misconfigured(f"{text[:60]!r} is no CIDR block.") from error


@lru_cache(maxsize=4096)
def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _address(text: str) -> Address | None:
    if not text:  # mostly, and an exception costs
        return None
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
