"""Groups failures that are alike: of one code, with messages that differ in numbers, ids and quoted parts only."""

import re
from hashlib import blake2b
from typing import Final

LENGTH: Final = 12
"""Hexadecimal digits of a fingerprint."""
_QUOTED: Final = re.compile(r""""[^"]*"|(?<!\w)'[^']*'|`[^`]*`|“[^”]*”""")
_ID: Final = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]+)*\b|\b0x[0-9a-f]+", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)*")


def fingerprint(code: str, message: str) -> str:
    """The same for errors that are alike; empty where there is none."""
    if not code:
        return ""
    return blake2b(f"{code}\0{normalised(message)}".encode(), digest_size=LENGTH // 2).hexdigest()


def normalised(message: str) -> str:
    """The message with ``…`` in the place of what differs from job to job: quoted parts, ids, numbers."""
    text = message
    for pattern in (_QUOTED, _ID, _NUMBER):
        text = pattern.sub("…", text)
    return text
