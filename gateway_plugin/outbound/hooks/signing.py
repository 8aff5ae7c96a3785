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
from signalbox.wire.outbound import HookSecret, Webhook

_PREFIX: Final = "whsec_"


def message_id(hook: str, job_id: str) -> str:
    """The ``webhook-id`` of a job's end at one webhook: the same at each attempt, so that a receiver knows it again."""
    return f"msg_{token(hook)}_{job_id}"


def names_of(hook: Webhook, at: float) -> tuple[str, ...]:
    """The secrets that sign an attempt at ``at`` (UTC seconds): both while the previous one still counts."""
    return (hook.secret, hook.previous_secret) if hook.previous_secret and at < hook.previous_until else (hook.secret,)


def signed(secrets: Sequence[HookSecret], message: str, at: float, body: bytes) -> dict[str, str]:
    """The three headers of an attempt at ``at`` (UTC seconds). Raises :class:`Misconfigured` if one is not base64."""
    timestamp = str(int(at))
    content = f"{message}.{timestamp}.".encode() + body
    return {
        "webhook-id": message,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{_signature(text, content)}" for text in (one.secret for one in secrets)),
    }


def _signature(secret: str, content: bytes) -> str:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError as error:
        raise Misconfigured("The webhook's secret is not base64; give it another one.") from error
    return base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
