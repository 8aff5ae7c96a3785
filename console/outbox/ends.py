"""How two documents of one API key become one: an end that either knows of is an end in both."""

from msgspec.structs import replace

from signalbox.wire.keydocs import ApiKey


def with_ends_of(mine: ApiKey, other: ApiKey) -> ApiKey:
    """``mine`` with what ended it in ``other``. Pure.

    A revocation counts whichever is older: there is no way back from it. An earlier expiry counts if ``other`` is the
    newer one, as after a rotation that this side has forgotten. So does that its account is disabled, from which there
    is a way back: it is no end, and a newer ``mine`` that enables the account takes it away.
    """
    revoked_at = mine.revoked_at if mine.revoked_at is not None else other.revoked_at
    expires_at = mine.expires_at
    is_newer = other.updated_at > mine.updated_at
    if is_newer and other.expires_at is not None:
        expires_at = other.expires_at if expires_at is None else min(expires_at, other.expires_at)
    is_disabled = mine.is_disabled or (is_newer and other.is_disabled)
    return replace(mine, revoked_at=revoked_at, expires_at=expires_at, is_disabled=is_disabled)
