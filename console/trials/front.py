"""The call itself, by HTTP to the front."""

import http.client
import time
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from console.trials.models import MOST_ANSWER
from signalbox.program.errors import Misconfigured, Unavailable

WAIT_S: Final = 20
"""How long the front is asked to wait for the job's end."""
_TIMEOUT_S: Final = WAIT_S + 10.0
KNOWN_WITHIN_S: Final = 10.0
"""Gateways learn of a key and of a version a moment after they are published; so long they may say that they know none
of it."""
_AGAIN_S: Final = 0.1
_JOB: Final = "X-Signalbox-Job-Id"
_UNKNOWN: Final = frozenset({401, 404})


class Answer(NamedTuple):
    """status, text: of the front. is_cut: the text is only the beginning. took_ms: of the call that was answered."""

    status: int
    text: str
    is_cut: bool
    job_id: str
    took_ms: float


def path(model: str, version: int) -> str:
    """Of a version's predictions."""
    return f"/v1/models/{quote(model, safe='')}/versions/{version}:predict"


def call(url: str, where: str, body: bytes, key: str) -> Answer:
    """The front's answer. Raises :class:`Unavailable` where it cannot be reached, or does not answer in time."""
    until = time.monotonic() + KNOWN_WITHIN_S
    while True:
        answer = _once(url, where, body, key)
        if answer.status not in _UNKNOWN or time.monotonic() >= until:
            return answer
        time.sleep(_AGAIN_S)


def _once(url: str, where: str, body: bytes, key: str) -> Answer:
    parts = urlsplit(url)
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    if parts.scheme not in kinds or not parts.hostname:
        raise Misconfigured(
            "SIGNALBOX_CONSOLE_TRIAL_URL, or FRONT_URL, is no URL that begins with http:// or https://."
        )
    connection = kinds[parts.scheme](parts.hostname, parts.port, timeout=_TIMEOUT_S)
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Prefer": f"wait={WAIT_S}",
        "Connection": "close",
    }
    began = time.monotonic()
    try:
        connection.request("POST", parts.path.rstrip("/") + where, body, headers)
        response = connection.getresponse()
        read = response.read(4 * MOST_ANSWER + 1)
    except (OSError, http.client.HTTPException) as error:
        why = "does not answer in time" if isinstance(error, TimeoutError) else f"cannot be reached: {error}"
        raise Unavailable(f"The front {url} {why}.", retry_after_s=5.0) from error
    finally:
        connection.close()
    took_ms = (time.monotonic() - began) * 1000
    text = read.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")  # PostgreSQL keeps no NUL
    job_id = response.headers.get(_JOB, "")[:36]
    return Answer(response.status, text[:MOST_ANSWER], len(text) > MOST_ANSWER, job_id, round(took_ms, 1))
