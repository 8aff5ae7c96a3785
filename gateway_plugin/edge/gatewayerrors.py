"""The errors that Tyk has for a request by itself, in its own words; ``error_overrides`` are written against them."""

from typing import Final, NamedTuple


class GatewayError(NamedTuple):
    """One error. flag: Tyk's name of its kind, empty = it has none."""

    status: int
    text: str
    flag: str = ""


PLUGIN_AWAY: Final = GatewayError(403, "Key not authorised")
NO_SESSION: Final = GatewayError(403, "Forbidden")
HOOK_FAILED: Final = GatewayError(500, "Middleware error")
NOT_PROXIED: Final = GatewayError(500, "There was a problem proxying the request", "UCF")
KEY_INACTIVE: Final = GatewayError(403, "Key is inactive, please renew")
KEY_EXPIRED: Final = GatewayError(401, "Key has expired, please renew")
API_DISALLOWED: Final = GatewayError(403, "Access to this API has been disallowed")
RATE_EXCEEDED: Final = GatewayError(429, "Rate Limit Exceeded", "RLT")
QUOTA_EXCEEDED: Final = GatewayError(403, "Quota exceeded", "QEX")
NOT_LISTED: Final = GatewayError(403, "Requested endpoint is forbidden")

REASONS: Final = {
    KEY_INACTIVE: "forbidden:inactive",
    KEY_EXPIRED: "unauthorized:expired",
    API_DISALLOWED: "forbidden:api",
    NOT_LISTED: "forbidden:path",
    RATE_EXCEEDED: "limit_exceeded:rate",
    QUOTA_EXCEEDED: "limit_exceeded:quota",
}
"""Refusals that are counted here. The plugin counts its own; other errors are no fault of a caller's."""
