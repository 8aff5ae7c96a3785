"""NATS keys: Ed25519 key pairs as text, of which a server knows the public one and a program signs with the seed.

Source: https://github.com/nats-io/nkeys, strkey.go (a prefix, the bytes, a CRC-16, in base 32). nats-py has the
same by the package ``nkeys``, which has had no release since 2024 and needs PyNaCl; ``cryptography``, which the console
has anyway, signs Ed25519.
"""

import base64
import binascii
import re
import struct
from typing import TYPE_CHECKING, Final

from signalbox.program.errors import Misconfigured

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SEED: Final = 18 << 3
_USER: Final = 20 << 3
_RAW_BYTES: Final = 32
_SEED_CHARS: Final = 58
PUBLIC: Final = re.compile(r"U[A-Z2-7]{55}")
"""Form of a user's public key."""
NO_KEYS: Final = (
    "the server has no user with a key. Include the output of `signalbox nats-users --keys FOLDER` in its "
    "configuration, and reload it (SIGHUP)"
)


def mint() -> str:
    """The seed of a new key pair: 58 characters, which begin with ``SU``. A secret."""
    raw = _ed25519().generate().private_bytes_raw()
    return _written(bytes([_SEED | _USER >> 5, (_USER & 31) << 3]) + raw)


def public(seed: str) -> str:
    """The public key of a seed: 56 characters, which begin with ``U``. Raises :class:`Misconfigured`."""
    pair = _ed25519().from_private_bytes(_raw(seed))
    return _written(bytes([_USER]) + pair.public_key().public_bytes_raw())


def user(public_key: str) -> str:
    """NATS user of a host, by its public key: so no name is ever another key's, also after one was revoked."""
    return f"host-{public_key[1:9].lower()}"


def sign(seed: str, nonce: str) -> bytes:
    """What CONNECT answers a server's nonce with, as text of base 64. Raises :class:`Misconfigured`."""
    signature = _ed25519().from_private_bytes(_raw(seed)).sign(nonce.encode())
    return base64.urlsafe_b64encode(signature).rstrip(b"=")


def _ed25519() -> "type[Ed25519PrivateKey]":
    """The library's class, which only programs with a key load."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise Misconfigured(
            "Keys of NATS need the Python package cryptography: pip install 'signalbox[worker]' has it."
        ) from error
    return Ed25519PrivateKey


def _written(data: bytes) -> str:
    checked = data + struct.pack("<H", binascii.crc_hqx(data, 0))
    return base64.b32encode(checked).rstrip(b"=").decode()


def _raw(seed: str) -> bytes:
    """The 32 bytes of a user's seed; no error names any of it."""
    try:
        data = base64.b32decode(seed + "=" * (-len(seed) % 8)) if len(seed) == _SEED_CHARS else b""
    except ValueError:  # binascii.Error is one, and so is what is not ASCII
        data = b""
    body, crc = data[:-2], data[-2:]
    is_whole = len(body) == _RAW_BYTES + 2 and crc == struct.pack("<H", binascii.crc_hqx(body, 0))
    if not is_whole or body[0] != _SEED | _USER >> 5 or body[1] != (_USER & 31) << 3:
        raise Misconfigured("SIGNALBOX_NATS_SEED: that is no seed of a NATS user; it has 58 characters, SU...")
    return body[2:]
