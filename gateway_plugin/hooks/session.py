"""Names of what a session's metadata holds: from the auth hook to the front, and on to the post hook."""

from typing import Final

TOKEN: Final = "token"  # noqa: S105  the field's name in Tyk
KEY_ID: Final = "key_id"
ACCOUNT: Final = "account"
"""Whose bytes a body's are."""
BODY_BYTES: Final = "body_bytes"
"""The largest body that the key may send."""
