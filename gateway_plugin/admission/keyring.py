"""Checks API keys in memory, against a table that NATS keeps current.

A revocation is in force the moment its message arrives. Without proof that the table is current the
plugin answers 503 for every key: it neither serves a revoked key nor calls a good one wrong.
"""

import time
from collections.abc import Callable
from typing import Final

from gateway_plugin.admission.addresses import is_within, neighbourhood
from gateway_plugin.admission.failures import Failures
from gateway_plugin.admission.usage import KeyCounts
from signalbox.bus.table import Table
from signalbox.program import keys, metrics
from signalbox.program.errors import Forbidden, LimitExceeded, SignalboxError, Unauthorized, Unavailable
from signalbox.wire.access import is_listed
from signalbox.wire.keydocs import ApiKey

SUBMIT: Final = "jobs:submit"
READ: Final = "jobs:read"
CANCEL: Final = "jobs:cancel"
URGENT: Final = "jobs:urgent"
_REFUSED: Final = (
    "Send a valid API key as Authorization: Bearer sbx_... (or X-Api-Key): it is missing, mistyped, unknown, "
    "revoked, expired, of a disabled account, or not for the address you call from."
)
_NOBODY: Final = ApiKey(id="", account_id="", hmac="0" * 64)
"""Stands in for an unknown key; no digest is all zeros."""
_MOST_PROVEN: Final = 10_000
_UNKNOWN: Final = "unknown"
"""All addresses that are not known: they share one count."""

REFUSED: Final = metrics.counter("keys_refused", "API keys refused, by the reason.", "why")


class Keyring:
    """Checks keys.

    peppers: accepted ones, the current first (two during a rotation). stale_s: how old the proof that
    the table is current may be. most_failures: a minute, of one address and of one key id. counts: what is
    called with which key, None = for nobody. wall: UTC clock, seconds.
    """

    def __init__(
        self,
        table: Table[ApiKey],
        peppers: tuple[str, ...],
        *,
        stale_s: float,
        most_failures: int = 60,
        counts: KeyCounts | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._peppers = peppers
        self._stale_s = stale_s
        self._wall = wall
        self.counts = counts or KeyCounts()
        self._note_use = self.counts.note
        self._of_addresses = Failures(limit=most_failures, monotonic=monotonic)
        self._of_ids = Failures(limit=most_failures, monotonic=monotonic)
        self._proven: dict[str, ApiKey] = {}

    def check(self, text: str, address: str = "") -> ApiKey:
        """The key whose full text this is. address: where it came from, as far as that is known already.

        Raises :class:`Unauthorized`, always with the same words; :class:`LimitExceeded` for a wrong key after too
        many of them from one address, from addresses that are not known, or with one key id; :class:`Unavailable`
        when the table may be out of date. A right key is looked at before any count, so wrong guesses lock no key
        out. An unknown id costs what a known one does; a key proven before, and not changed since, is not hashed
        again.
        """
        self._require_current()
        proven = self._proven.get(text)
        if proven is not None and self._table.get(proven.id) is proven and self._is_valid(proven):
            self._note_use(proven.id)
            return proven
        if not text:
            raise self._refusal("missing")
        try:
            kid = keys.parse(text).kid
        except Unauthorized as error:
            raise self._guessed("mistyped", address) from error
        found = self._table.get(kid) or _NOBODY
        # Nothing is skipped from here on for an unknown id, so that time does not tell which ids there are.
        outcomes = [keys.matches(pepper, text, found.hmac) for pepper in self._peppers]
        is_right, is_valid = True in outcomes, self._is_valid(found)
        if not (is_right and is_valid):
            if is_right:
                self._count_refused(kid, "ended")
            raise self._guessed("ended" if is_right else "wrong", address, kid)
        if len(self._proven) >= _MOST_PROVEN:
            self._proven.clear()
        self._proven[text] = found
        self._note_use(found.id)
        return found

    def by_id(self, kid: str) -> ApiKey:
        """The key an earlier hook of the same request checked. Raises as :meth:`check`."""
        self._require_current()
        found = self._table.get(kid) if kid else None
        if found is None or not self._is_valid(found):
            if found is not None:
                self._count_refused(kid, "ended")
            raise self._refusal("unknown" if found is None else "ended")
        return found

    def require_unended(self, key: ApiKey) -> ApiKey:
        """A key that was good when its request came, as it is known now. Raises :class:`Unauthorized` if it has ended.

        A table that may be out of date ends none.
        """
        found = self._table.get(key.id)
        if found is None or not self._is_valid(found):
            raise self._refusal("ended")
        return found

    def require_address(self, key: ApiKey, address: str) -> None:
        """Raise :class:`Unauthorized` where a key is for certain networks and this is not one of them."""
        if key.networks and not is_within(address, key.networks):
            self._count_refused(key.id, "address")
            raise self._refusal("address")

    def _count_refused(self, kid: str, why: str) -> None:
        """Count a call of a key that is right and of no use, which nobody else counts."""
        self.counts.calls[kid] += 1
        self.counts.refuse_for(kid, f"{Unauthorized.code}:{why}")

    def _refusal(self, why: str) -> Unauthorized:
        REFUSED.labels(why).inc()
        return Unauthorized(_REFUSED)

    def _guessed(self, why: str, address: str, kid: str = "") -> SignalboxError:
        """Count a wrong key; returns what it is answered with. kid: empty = it names none."""
        guesser = neighbourhood(address) or _UNKNOWN
        wait_s = max(self._of_addresses.wait_s(guesser), self._of_ids.wait_s(kid))
        self._of_addresses.count(guesser)
        self._of_ids.count(kid)
        if wait_s <= 0:
            return self._refusal(why)
        REFUSED.labels("too_many").inc()
        return LimitExceeded(
            "Too many wrong API keys; wait a while. A right one is let in at once.", retry_after_s=wait_s, bound="keys"
        )

    def _is_valid(self, key: ApiKey) -> bool:
        if key.revoked_at is not None or key.is_disabled:
            return False
        return key.expires_at is None or key.expires_at > self._wall()

    def _require_current(self) -> None:
        if self._table.synced_age_s > self._stale_s:
            raise Unavailable("Signalbox cannot check API keys now; nothing was accepted.", retry_after_s=2.0)


def require_scope(key: ApiKey, scope: str) -> None:
    """Raise :class:`Forbidden` if the key lacks ``scope``."""
    if scope not in key.scopes:
        raise Forbidden(f"This API key lacks the scope {scope}.", scope=scope)


def require_urgent(key: ApiKey) -> None:
    """Raise :class:`Forbidden` if the key may not overtake all others."""
    if URGENT not in key.scopes:
        raise Forbidden(
            f'Priority "hi" overtakes all other jobs, and this API key lacks the scope {URGENT}. '
            'Ask for "mid", or use a key that has it.',
            scope=URGENT,
        )


def require_model(key: ApiKey, model: str) -> None:
    """Raise :class:`Forbidden` if the key or its account is for other models; says nothing of whether it exists.

    That a model is closed to a key is the catalog's to say: such a key finds none there.
    """
    if not is_listed(key, model):
        raise Forbidden(f'This API key may not use the model "{model}".', model=model)
