"""Keeps secrets out of what is written for people to read: the last step of every log line.

Three filters, each for what the one before lets through: the secrets this process was itself given (:func:`know`;
settings register them), the forms that secrets of ours have (API keys by their checksum, operators' tokens), and the
names before values (``Authorization: ...``). Payloads have no form, so no code may log them in the first place.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from signalbox.program import keys
from signalbox.program.errors import Unauthorized

HIDDEN: Final = "(redacted)"
_SHORTEST: Final = 8
"""A secret shorter than this would turn ordinary words into ``(redacted)``."""

_NAMES: Final = (
    "proxy-authorization",
    "authorization",
    "idempotency-key",
    "idempotency_key",
    "set-cookie",
    "cookie",
    "x-api-key",
    "api_key",
    "apikey",
    "csrfmiddlewaretoken",
    "password",
    "passwd",
    "pepper",
    "secret_key",
    "client_secret",
)
FIELDS: Final = frozenset(_NAMES) | {"secret", "payload", "body", "inputs", "instances", "outputs"}
"""Names of fields whose values are never written, whatever they hold."""

_KEY: Final = re.compile(r"sbx_[a-z]{2,8}_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}")
_TOKEN: Final = re.compile(r"(sbo_[a-z2-7]{12}_)[A-Za-z0-9]{43}")
_EVENT_TOKEN: Final = re.compile(r"(sbe_[0-9A-Za-z]{12}_[0-9]{1,12}_)[0-9A-Za-z_-]{43}")
_NAMED: Final = re.compile(
    r"(?ix) \b ("
    + "|".join(_NAMES)
    + r""")
    ( \\*["'] \s* , \s* b? \\*["'] | \\*["']? \s* [:=] \s* (?: b? \\*["'] )? )
    (?: (?:bearer|basic) \s+ )? (?!\(redacted\)) [^\s"'\\,;})\]]+"""
)
_USERINFO: Final = re.compile(r"(://[^\s/:@\"']*):([^\s/@\"']+)@")
_known: set[str] = set()


def know(secret: str) -> None:
    """Never let this process write ``secret`` again, nor the password within it if it is a URL."""
    for text in (secret, _password_in(secret)):
        if len(text) >= _SHORTEST:
            _known.update({text, json.dumps(text)[1:-1]})


def redact(text: str) -> str:
    """``text`` without secrets. Of an API key its public id stays, so that a line can be traced to it."""
    for secret in _known:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    if "sbx_" in text:
        text = _KEY.sub(_public_part, text)
    if "sbo_" in text:
        text = _TOKEN.sub(rf"\1{HIDDEN}", text)
    if "sbe_" in text:
        text = _EVENT_TOKEN.sub(rf"\1{HIDDEN}", text)
    if "://" in text:
        text = _USERINFO.sub(rf"\1:{HIDDEN}@", text)
    return _NAMED.sub(rf"\1\2{HIDDEN}", text)


def redact_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of one log line, with the values of secret names redacted."""
    return {name: HIDDEN if name.lower() in FIELDS and value else value for name, value in fields.items()}


def _public_part(match: "re.Match[str]") -> str:
    try:
        parsed = keys.parse(match[0])
    except Unauthorized:
        return match[0]  # looks like a key and is none: ordinary text
    return f"sbx_{parsed.env}_{parsed.kid}_{HIDDEN}"


def _password_in(text: str) -> str:
    if "://" not in text:
        return ""
    try:
        return unquote(urlsplit(text).password or "")
    except ValueError:
        return ""
