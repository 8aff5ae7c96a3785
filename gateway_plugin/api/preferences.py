"""Reads from the ``Prefer`` header (RFC 7240) how long a caller waits for a job."""

import re
from typing import Final, NamedTuple

_WAIT: Final = re.compile(r"wait\s*=\s*\"?([0-9]{1,6})\"?\Z", re.IGNORECASE)


class Preference(NamedTuple):
    """How long a caller waits. is_async: 202 if the job has not ended in time. wait_s: seconds, None = not said."""

    is_async: bool = False
    wait_s: float | None = None

    @property
    def applied(self) -> str:
        """The value of ``Preference-Applied``, empty without a preference."""
        parts = ["respond-async"] if self.is_async else []
        if self.wait_s is not None:
            parts.append(f"wait={self.wait_s:.0f}")
        return ", ".join(parts)


NONE: Final = Preference()


def preference(text: str) -> Preference:
    """The preference in a ``Prefer`` header. Unknown preferences are ignored, as the RFC demands."""
    if not text:
        return NONE
    is_async, wait_s = False, None
    for part in text.split(","):
        word = part.strip()
        if word.lower() == "respond-async":
            is_async = True
        elif (found := _WAIT.match(word)) is not None:
            wait_s = float(found.group(1))
    return Preference(is_async, wait_s)
