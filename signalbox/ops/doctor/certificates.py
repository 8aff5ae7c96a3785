"""Rules for certificates."""

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from signalbox.ops.doctor.catalog import Finding
from signalbox.program.words import counted

SOON: Final = timedelta(days=30)
_LARGEST_FILE: Final = 1024 * 1024
_BLOCK: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17


def examine_file(path: Path, now: datetime | None = None) -> Iterator[Finding]:
    """Certificates of a PEM file that end soon."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            blocks = _BLOCK.findall(file.read(_LARGEST_FILE))
        first = min(_end(ssl.PEM_cert_to_DER_cert(block)) for block in blocks)
    except (OSError, ValueError, IndexError) as error:
        yield Finding("file.unreadable", str(path), type(error).__name__)
        return
    yield from soon(first, str(path), now or datetime.now(UTC))


def soon(end: datetime, where: str, now: datetime) -> Iterator[Finding]:
    """A certificate that has ended, or ends soon."""
    if end <= now:
        yield Finding("certificate.ends_soon", where, f"ended on {end:%Y-%m-%d}")
    elif end - now < SOON:
        yield Finding("certificate.ends_soon", where, f"ends on {end:%Y-%m-%d}, in {counted((end - now).days, 'day')}")


def _end(der: bytes) -> datetime:
    """When a certificate ends (RFC 5280, 4.1): version?, serial, algorithm, issuer, validity (from, to)."""
    _, at, _ = _field(der, 0)
    _, at, _ = _field(der, at)
    tag, start, end = _field(der, at)
    for _ in range(4 if tag == _VERSION else 3):
        _, start, end = _field(der, end)
    _, _, end = _field(der, start)
    tag, start, end = _field(der, end)
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _field(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, begin and end of the content of the field at ``at``."""
    size, start = der[at + 1], at + 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[at + 2 : start], "big")
    return der[at], start, start + size
