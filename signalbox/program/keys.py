"""API keys: their text, and the keyed hash by which they are known.

``sbx_<env>_<kid>_<secret><crc>``: ``kid`` 12 base62 characters (public: an id, safe to log), ``secret`` 43 (256 bits),
``crc`` 6 (CRC-32 of all before it), so a typo is refused without looking anything up and secret
scanners can recognise a leaked key. A fast keyed hash is right for a secret of 256 random bits: there is no dictionary.
"""

import hashlib
import hmac
import re
import secrets
import string
import zlib
from typing import Final, NamedTuple

from signalbox.program.errors import Unauthorized

ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_KID_SIZE: Final = 12
_SECRET_SIZE: Final = 43
_CRC_SIZE: Final = 6
_KEY: Final = re.compile(
    rf"sbx_([a-z]{{2,8}})_([0-9A-Za-z]{{{_KID_SIZE}}})_([0-9A-Za-z]{{{_SECRET_SIZE}}})([0-9A-Za-z]{{{_CRC_SIZE}}})\Z"
)


class KeyParts(NamedTuple):
    """A well-formed key. ``kid`` is its public id; ``text`` is the secret whole and must not be logged."""

    env: str
    kid: str
    text: str


def mint(env: str = "live") -> tuple[str, str]:
    """A new key: ``(text, kid)``. The text is shown once and kept nowhere.

    env: 2 to 8 small letters that tell keys of one installation from another's. Raises ``ValueError`` otherwise.
    """
    if not re.fullmatch(r"[a-z]{2,8}", env):
        msg = f"env must be 2 to 8 small letters, not {env!r}"
        raise ValueError(msg)
    kid = _random(_KID_SIZE)
    body = f"sbx_{env}_{kid}_{_random(_SECRET_SIZE)}"
    return body + _checksum(body), kid


def parse(text: str) -> KeyParts:
    """The parts of a key, checked for form and checksum alone. Raises :class:`Unauthorized`."""
    found = _KEY.match(text)
    if found is None or not hmac.compare_digest(_checksum(text[:-_CRC_SIZE]), found.group(4)):
        raise Unauthorized("The API key is malformed: check that it was copied whole.")
    return KeyParts(found.group(1), found.group(2), text)


def digest(pepper: str, text: str) -> str:
    """What is stored of a key: HMAC-SHA-256 of its whole text under the installation's pepper, as hex."""
    return hmac.digest(pepper.encode(), text.encode(), hashlib.sha256).hex()


def pepper_id(pepper: str) -> str:
    """A short name for a pepper that does not give it away; it tells which keys were made under which pepper."""
    return hmac.digest(pepper.encode(), b"signalbox pepper id", hashlib.sha256).hex()[:12]


def matches(pepper: str, text: str, stored: str) -> bool:
    """Whether ``text`` is the key behind a stored digest, in time that tells nothing."""
    return hmac.compare_digest(digest(pepper, text), stored)


def _random(size: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(size))


def _checksum(body: str) -> str:
    value = zlib.crc32(body.encode())
    text = ""
    for _ in range(_CRC_SIZE):
        value, digit = divmod(value, len(ALPHABET))
        text = ALPHABET[digit] + text
    return text
