"""Names of the fields of a session's metadata: the auth hook gives it to the front, the front to the post hook."""

from typing import Final

TOKEN: Final = "token"  # noqa: S105  the field's name in Tyk
KEY_ID: Final = "key_id"
ACCOUNT: Final = "account"
"""The account that a body's bytes are counted for."""
BODY_BYTES: Final = "body_bytes"
"""The largest body that the key may send."""
