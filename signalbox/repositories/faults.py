"""What an object store's refusals and failures mean: obstore's errors, and the texts of S3, Google and Azure in them.

No foreign text goes on into an error or a log: a URL in it may be signed.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from signalbox.program.errors import Conflict, Misconfigured, NotFound, SignalboxError, Unavailable

_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_BAD_PATH: Final = re.compile(r"""[Pp]ath "(.{1,200}?)"[: ]""", re.DOTALL)
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "bucket does not exist")
_IDENTITY: Final = ("169.254.", "metadata.google.internal")
"""Where a machine's own identity is asked for; nothing answers there where it has none."""
_PANIC: Final = "RustPanic"
"""What obstore raises where its code gives up, as over an endpoint that is no URL; the class cannot be imported."""
_PASSING: Final = frozenset({408, 425, 429})


class UnlistableKey(Misconfigured):
    """A key that is no path. key: all of it, empty = not known."""

    key = ""


@contextmanager
def translated(name: str, path: str = "") -> Iterator[None]:
    """Raise what obstore raises inside in our words.

    name: the repository. path: the key that is read or written; empty = a listing. Raises :class:`Unavailable`,
    :class:`Misconfigured`, :class:`NotFound` and :class:`Conflict`.
    """
    try:
        yield
    except TimeoutError:
        raise Unavailable(f"The store of repository {name} does not answer in time.", repository=name) from None
    except Exception as error:
        if isinstance(error, BaseError | FileNotFoundError | ValueError) or type(error).__name__ == _PANIC:
            raise _meaning(error, str(error), name, path) from None
        raise


def changed(name: str, path: str) -> Conflict:
    """Another file is there than the one that was asked for."""
    return Conflict(f"{path} of repository {name} is no longer the one that was listed.", repository=name)


def _meaning(error: Exception, text: str, name: str, path: str) -> SignalboxError:
    status, shown = _answer(text)
    if isinstance(error, AlreadyExistsError):
        return Conflict(f"{path} is in repository {name} already.", repository=name)
    if isinstance(error, PreconditionError):
        return changed(name, path)
    if any(mark in text for mark in _IDENTITY):
        mend = f"Put its keys into {name}.json in the folder of credentials, or give the machine an identity."
        return Misconfigured(f"No credentials were found for repository {name}. {mend}", repository=name)
    if any(mark in text for mark in _NO_BUCKET) or (not path and status == 404):
        return Misconfigured(f"The bucket of repository {name} does not exist{shown}.", repository=name)
    if "builder error" in text or type(error).__name__ == _PANIC:
        return Misconfigured(
            f"The store of repository {name} has an endpoint, or a key, that no request can be made with. An endpoint"
            ' without TLS has to be allowed: "allow_http": true in its credentials file.',
            repository=name,
        )
    if isinstance(error, FileNotFoundError | ValueError):  # the latter: what no key can be
        return NotFound(f"{path} is not in repository {name}.", repository=name)
    is_refused = status in {401, 403} or "Invalid Access Key" in text
    if is_refused or isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return Misconfigured(f"The store of repository {name} refuses its credentials{shown}.", repository=name)
    if isinstance(error, InvalidPathError):
        return _unlistable(text, name)
    if status == 416 or "Wanted range starting" in text:
        return Conflict(f"{path} of repository {name} is shorter than it was.", repository=name)
    if "redirect" in text:
        return Misconfigured(f"The bucket of repository {name} is in another region: set region.", repository=name)
    if 400 <= status < 500 and status not in _PASSING:
        return Misconfigured(f"The store of repository {name} refuses the request{shown}.", repository=name)
    return Unavailable(f"The store of repository {name} is away or overloaded{shown}.", repository=name)


def _answer(text: str) -> tuple[int, str]:
    """Status of the store's answer, 0 = none came, and how it and the store's own code are shown."""
    status, code = _STATUS.search(text), _CODE.search(text)
    said = " ".join(found[1] for found in (status, code) if found)
    return int(status[1]) if status else 0, f" ({said})" if said else ""


def _unlistable(text: str, name: str) -> UnlistableKey:
    """A page with such a key comes not at all."""
    found = _BAD_PATH.search(text)
    shown = f": {found[1]!a}" if found else ""
    error = UnlistableKey(
        f"Repository {name} has a key that cannot be listed{shown}. Rename it: parts must not be empty, '.' or '..',"
        " nor have control characters.",
        repository=name,
    )
    error.key = found[1] if found else ""
    return error
