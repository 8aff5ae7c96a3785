"""Planted secrets, and the search for them in whatever a run left behind. Shared by every test that looks for leaks."""

import base64
import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote


class Leak(NamedTuple):
    """Where a secret was found. shape: how it was written down."""

    place: str
    name: str
    shape: str


def canary(name: str) -> str:
    """A secret nobody would write by chance, and whose name says what leaked."""
    return f"canary-{name}-{secrets.token_hex(12)}"


def shapes(secret: str) -> dict[str, str]:
    """The ways a text gets into a log."""
    raw = secret.encode()
    # The middle of base64 does not depend on what stood before it, at one of three offsets.
    middles = {f"base64+{skip}": base64.b64encode(b"\0" * skip + raw).decode()[4:-4] for skip in range(3)}
    found = {
        "plain": secret,
        "hex": raw.hex(),
        "quoted": quote(secret, safe=""),
        "escaped": json.dumps(secret)[1:-1],
        "list of bytes": ", ".join(map(str, raw)),
        **middles,
    }
    return {shape: text for shape, text in found.items() if len(text) > 5}


def leaks(texts: Mapping[str, str], planted: Mapping[str, str]) -> list[Leak]:
    """Every planted secret found in ``texts`` (name of the place -> text), in whatever shape."""
    return [
        Leak(place, name, shape)
        for name, secret in planted.items()
        for shape, form in shapes(secret).items()
        for place, text in texts.items()
        if form in text
    ]


def read_all(paths: Iterable[Path]) -> dict[str, str]:
    """The text of files, whatever bytes they hold."""
    return {str(path): path.read_text("utf-8", "replace") for path in paths if path.is_file()}
