"""Signed tokens in the addresses of jobs' events: a browser's EventSource sends no key.

``sbe_<key id>_<expires at>_<mac>``: for one job and one key, until an instant. The MAC is keyed with the pepper of API
keys, which all plugins share, so each knows the others' tokens, and none is stored. The key behind a token must still
be good, and gives it no more rights than it has.
"""

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from gateway_plugin.admission.keyring import Keyring
from signalbox.program.errors import Unauthorized
from signalbox.wire.keydocs import ApiKey

_VALID_S: Final = 3600
"""Seconds that a token may be used to begin a stream."""
_EVENTS: Final = re.compile(r"/v1/jobs/([^/?]{1,64})/events\?(?:.*&)?token=([^&]*)(?:&.*)?\Z")
_TOKEN: Final = re.compile(r"sbe_([0-9A-Za-z]{12})_([0-9]{1,12})_([0-9A-Za-z_-]{43})\Z")


class EventTokens:
    """Signs tokens and finds the keys behind them.

    peppers: accepted ones, the current first (two during a rotation). wall: UTC clock, seconds.
    """

    def __init__(self, peppers: Sequence[str], keyring: Keyring, *, wall: Callable[[], float] = time.time) -> None:
        self._secrets = [pepper.encode() for pepper in peppers]
        self._keyring = keyring
        self._wall = wall

    def url(self, job_id: str, key: ApiKey) -> str:
        """The address of a job's events, with a token of a key's."""
        expires_at = int(self._wall()) + _VALID_S
        mac = _mac(self._secrets[0], job_id, key.id, expires_at)
        return f"/v1/jobs/{job_id}/events?token=sbe_{key.id}_{expires_at}_{mac}"

    def key_of(self, url: str) -> ApiKey | None:
        """The key behind the token in a job's address of events; None for any other address.

        Raises :class:`Unauthorized` for a token that is wrong, expired or for another job, and as
        :meth:`Keyring.by_id`.
        """
        found = _EVENTS.match(url)
        if found is None:
            return None
        token = _TOKEN.match(found[2])
        if token is None or not self._is_good(found[1], token[1], int(token[2]), token[3]):
            raise Unauthorized(
                "The token is wrong, expired, or for another job: read the job again and use its urls.events, which is"
                " good for an hour."
            )
        return self._keyring.by_id(token[1])

    def _is_good(self, job_id: str, kid: str, expires_at: int, mac: str) -> bool:
        """Whether a MAC is one of ours, in time that tells nothing, and still counts."""
        ours = [hmac.compare_digest(_mac(secret, job_id, kid, expires_at), mac) for secret in self._secrets]
        return True in ours and self._wall() < expires_at


def _mac(secret: bytes, job_id: str, kid: str, expires_at: int) -> str:
    said = f"signalbox events {job_id} {kid} {expires_at}".encode()
    return base64.urlsafe_b64encode(hmac.digest(secret, said, hashlib.sha256)).decode().rstrip("=")
