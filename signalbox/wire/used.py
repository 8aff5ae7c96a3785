"""What gateways tell of the calls that were made with API keys."""

from typing import Final

from signalbox.wire.messages import Doc

MOST_REASON: Final = 60
"""Characters of a reason that are kept."""


class KeyCalls(Doc, frozen=True, kw_only=True):
    """``Sb-Calls``, on ``used.keys``, beside the ids of keys in use: the calls with them since the report before.

    calls: with a key that is right, by its id. refused: those of them that were answered with an error, by key id
    and reason: the error's code, with the bound that was exceeded after a colon, or ``unauthorized:ended`` and
    ``unauthorized:address`` for a key that has ended, or not for where it came from.
    """

    calls: dict[str, int]
    refused: dict[str, dict[str, int]]
