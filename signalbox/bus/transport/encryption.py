"""Encryption of connections to NATS: when it is required, which authorities are trusted, what a refusal means.

One ``tls://`` address or an authority's file asks for TLS, and then nothing is sent to any server in the clear. Without
either nothing is sent to a server that asks for TLS: an attacker in between could remove that request.
"""

import ipaddress
import ssl
from typing import Final
from urllib.parse import SplitResult, urlsplit

from signalbox.program.errors import Misconfigured
from signalbox.program.settings import Wire

_ENCRYPTED: Final = frozenset({"tls", "wss"})
NO_TLS: Final = (
    "the server offers no TLS, and a tls:// address or SIGNALBOX_NATS_CA_FILE asks for it; nothing was sent. Give the "
    "server a tls block (deploy/nats/nats.conf), or write nats:// and leave the file out"
)
NO_PLAIN: Final = (
    "the server asks for TLS; nothing was sent. Write tls:// in SIGNALBOX_NATS_URL, and name the file of the authority "
    "that signed its certificate in SIGNALBOX_NATS_CA_FILE unless the system knows it"
)


def is_asked(settings: Wire) -> bool:
    """Whether every server must be spoken to through TLS."""
    return is_encrypted(settings.nats_url, settings.nats_ca_file)


def is_encrypted(nats_url: str, ca_file: str) -> bool:
    """:func:`is_asked` for settings as text."""
    return bool(ca_file) or any(one.scheme in _ENCRYPTED for one in _servers(nats_url))


def readable(nats_url: str, ca_file: str) -> list[str]:
    """Hosts to which passwords and payloads would cross a network unencrypted."""
    if is_encrypted(nats_url, ca_file):
        return []
    return [host for one in _servers(nats_url) if not is_loopback(host := one.hostname or "")]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener on ``host``; an empty one listens everywhere."""
    bare = host.strip("[]")
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def context(ca_file: str) -> ssl.SSLContext:
    """A TLS context that trusts the authorities of the file, or the system's, and checks the server's name.

    Raises :class:`Misconfigured`.
    """
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # ssl.SSLError is one: the file holds no certificate
        raise Misconfigured(f"SIGNALBOX_NATS_CA_FILE: {ca_file} cannot be read as certificates: {error}.") from error


def explained(error: Exception) -> str:
    """The text of an error of connecting; for a certificate that is not trusted, with the mend."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is refused: {error.verify_message.rstrip('.')}. SIGNALBOX_NATS_CA_FILE names "
            "the authority that signed it, SIGNALBOX_NATS_URL a name that stands in it"
        )
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return str(error) or type(error).__name__


def _servers(nats_url: str) -> list[SplitResult]:
    texts = [text.strip() for text in nats_url.split(",") if text.strip()]
    return [urlsplit(text if "://" in text else f"nats://{text}") for text in texts]
