"""A session, which the auth hook gives to the front and the front enforces, and the names in its metadata."""

from typing import Final, Self

import msgspec

from gateway_plugin.proto.coprocess_pb2 import SessionState

TOKEN: Final = "token"  # noqa: S105  the field's name in Tyk
KEY_ID: Final = "key_id"
ACCOUNT: Final = "account"
"""The account that a body's bytes are counted for."""
BODY_BYTES: Final = "body_bytes"
"""The largest body that the key may send."""


class Session(msgspec.Struct, frozen=True):
    """What an edge reads of a session. Messages are read slowly, and one session is read for each call of its key.

    body_bytes: its largest body, 0 = the edge's own limit. api_ids: those it may call, empty = all. expires: UTC unix
    seconds, 0 = never. quota_max: calls, none where it is not above 0; so with rate, calls in ``per`` seconds.
    """

    token: str = ""
    key_id: str = ""
    account: str = ""
    body_bytes: int = 0
    is_inactive: bool = False
    expires: int = 0
    api_ids: frozenset[str] = frozenset()
    last_updated: str = ""
    rate: float = 0.0
    per: float = 0.0
    quota_max: int = 0
    quota_renewal_rate: int = 0

    @classmethod
    def of(cls, state: SessionState) -> Self:
        """The session in a message. Raises ValueError where its size of bodies is no number."""
        metadata = state.metadata
        token = metadata.get(TOKEN, "")
        return cls(
            token=token,
            key_id=metadata.get(KEY_ID, ""),
            account=metadata.get(ACCOUNT) or token,
            body_bytes=int(metadata.get(BODY_BYTES, "0")),
            is_inactive=state.is_inactive,
            expires=state.expires,
            api_ids=frozenset(state.access_rights),
            last_updated=state.last_updated,
            rate=state.rate,
            per=state.per,
            quota_max=state.quota_max,
            quota_renewal_rate=state.quota_renewal_rate,
        )
