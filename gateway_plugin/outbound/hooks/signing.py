"""Signatures of Standard Webhooks, version 1: HMAC-SHA-256 of id, timestamp and body.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from signalbox.program.errors import Misconfigured
from signalbox.wire.names import token

_PREFIX: Final = "whsec_"


def message_id(hook: str, job_id: str) -> str:
    """The ``webhook-id`` of a job's end at one webhook: the same at each attempt, so that a receiver knows it again."""
    return f"msg_{token(hook)}_{job_id}"


def signed(secrets: Sequence[str], message: str, at: float, body: bytes) -> dict[str, str]:
    """The three headers of an attempt at ``at`` (UTC seconds), with a signature of each secret.

    Raises :class:`Misconfigured` if a secret is not base64.
    """
    timestamp = str(int(at))
    content = f"{message}.{timestamp}.".encode() + body
    return {
        "webhook-id": message,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{_signature(text, content)}" for text in secrets),
    }


def _signature(secret: str, content: bytes) -> str:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError as error:
        raise Misconfigured("The webhook's secret is not base64; give it another one.") from error
    return base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
