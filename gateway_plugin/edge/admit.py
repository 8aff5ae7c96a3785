"""Judges a key that may be called with: whether its session, its rate and its quota let a call in, as Tyk does it."""

from collections.abc import Callable
from typing import NamedTuple

from gateway_plugin.edge import gatewayerrors as errors
from gateway_plugin.edge.definition import CheckedApi
from gateway_plugin.edge.gatewayerrors import GatewayError
from gateway_plugin.edge.limits import KeyLimits, Quota, Rate
from gateway_plugin.hooks.session import Session
from signalbox.program.errors import Forbidden, LimitExceeded, SignalboxError, Unauthorized


class Judged(NamedTuple):
    """What is found of a call. error: None = it is let in. left_s: until its limit lets calls in again, None = never.

    rate, quota: as they are after it; None where the key has none.
    """

    error: GatewayError | None = None
    left_s: float | None = None
    rate: Rate | None = None
    quota: Quota | None = None


class Admission:
    """Charges calls to their keys. One for all that one gateway would count together. wall: UTC clock in seconds."""

    def __init__(self, limits: KeyLimits, wall: Callable[[], float]) -> None:
        self._limits = limits
        self._wall = wall

    def judge(self, session: Session, api: CheckedApi) -> Judged:
        """Charge one call of an API to a key, and say whether it is let in."""
        if session.api_ids and api.api_id not in session.api_ids:
            return Judged(self._ended(session) or errors.API_DISALLOWED)
        return self._charged(session, is_rate_limited=api.is_rate_limited, has_quota=api.has_quota)

    def admit(self, session: Session) -> None:
        """Charge one call to a key that came past no gateway, and was checked just now.

        Raises :class:`Unauthorized`, :class:`Forbidden`, and :class:`LimitExceeded` with the time of the next try.
        """
        found = self._charged(session, is_rate_limited=True, has_quota=True)
        if found.error is not None:
            raise _ours(found.error, found.left_s)

    def _charged(self, session: Session, *, is_rate_limited: bool, has_quota: bool) -> Judged:
        ended = self._ended(session)
        if ended is not None:
            return Judged(ended)
        rate = self._limits.take(session.token, session) if is_rate_limited else None
        if rate and not rate.is_allowed:
            return Judged(errors.RATE_EXCEEDED, rate.left_s, rate)
        quota = self._limits.spend(session.token, session) if has_quota else None
        if quota and not quota.is_allowed:
            return Judged(errors.QUOTA_EXCEEDED, quota.left_s, rate, quota)
        return Judged(None, None, rate, quota)

    def _ended(self, session: Session) -> GatewayError | None:
        if session.is_inactive:
            return errors.KEY_INACTIVE
        if 0 < session.expires < self._wall():
            return errors.KEY_EXPIRED
        return None


def _ours(error: GatewayError, left_s: float | None) -> SignalboxError:
    """The error of ours that says the same, in the words of tyk.conf's overrides."""
    if error is errors.RATE_EXCEEDED:
        return LimitExceeded(
            "The rate limit of this API key is reached; slow down.", retry_after_s=left_s, bound="rate"
        )
    if error is errors.QUOTA_EXCEEDED:
        return LimitExceeded(
            "The quota of this API key is used up; it renews with its next window.", retry_after_s=left_s, bound="quota"
        )
    if error is errors.KEY_EXPIRED:
        return Unauthorized("This API key has expired; ask an operator for a new one.", bound="expired")
    return Forbidden("This API key is inactive; ask an operator to activate it.", bound="inactive")
