"""URLs of repositories and of versions in them: parsed once, compared by path."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from signalbox.program.errors import InvalidRequest

SCHEMES: Final = ("file", "s3", "gs", "az")
MOST_LETTERS: Final = 1000
MOST_REPOSITORY_LETTERS: Final = 800
"""Of a repository's URL, so that the longest name of a model, a number and Triton's folder have room in a version's."""
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]\Z")
_REFUSED: Final = {
    "?": "a query",
    "#": "a fragment",
    "%": "percent-encoding; write the path as it is",
    "\\": "a backslash",
}


class Location(msgspec.Struct, frozen=True):
    """A place below which files lie.

    scheme: one of :data:`SCHEMES`. bucket: of S3 and Google Cloud Storage, or the container of Azure; empty = ``file``.
    prefix: the folders below it, without ``/`` at the ends; empty = all.
    """

    scheme: str
    bucket: str = ""
    prefix: str = ""

    @classmethod
    def parse(cls, url: str) -> Self:
        """``file:///folder`` or ``s3://bucket/prefix``. Raises :class:`InvalidRequest`, which says what is wrong."""
        if len(url) > MOST_LETTERS:
            raise InvalidRequest(f"A URL has at most {MOST_LETTERS} letters.")
        scheme, colon, rest = url.partition("://")
        if not colon or scheme not in SCHEMES:
            raise InvalidRequest(f"A repository's URL begins with {', '.join(f'{known}://' for known in SCHEMES)}.")
        for letter, what in _REFUSED.items():
            if letter in rest:
                raise InvalidRequest(f"A repository's URL has no {letter!r}: {what} is not taken.")
        bucket, _, path = rest.partition("/")
        if scheme == "file" and bucket:
            raise InvalidRequest("A file URL has three slashes and names no host: file:///folder.")
        if "@" in bucket or ":" in bucket:
            raise InvalidRequest(
                "A repository's URL has no user, password or port: put these into the repository's credentials file."
            )
        if scheme != "file" and not _BUCKET.match(bucket):
            raise InvalidRequest(
                f"A bucket's name has 3 to 222 small letters, digits, '-', '_' and '.': {scheme}://bucket/prefix."
            )
        return cls(scheme, bucket, _checked(path.rstrip("/")))

    @property
    def url(self) -> str:
        """The text that is stored and shown; parsing it gives an equal location."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/") if self.bucket else f"file:///{self.prefix}"

    @property
    def is_local(self) -> bool:
        """Whether its files are read in place."""
        return self.scheme == "file"

    @property
    def folder(self) -> Path:
        """Of a local one: the absolute folder."""
        assert self.is_local
        return Path("/") / self.prefix

    def below(self, *parts: str) -> Self:
        """The place that ``parts``, each of one or more names, lead to. Raises :class:`InvalidRequest`."""
        path = "/".join(part for part in (self.prefix, *parts) if part)
        return type(self)(self.scheme, self.bucket, _checked(path))

    def is_within(self, prefixes: Sequence[str]) -> bool:
        """Whether it is one of the URLs ``prefixes`` or lies below one, folder by folder.

        ``s3://`` alone stands for every bucket. Raises :class:`InvalidRequest` for a prefix that is no URL.
        """
        return any(self._lies_below(prefix) for prefix in prefixes)

    def _lies_below(self, prefix: str) -> bool:
        if prefix.removesuffix("://") in SCHEMES:
            return prefix == f"{self.scheme}://"
        above = Location.parse(prefix)
        is_same = (above.scheme, above.bucket) == (self.scheme, self.bucket)
        return is_same and f"{self.prefix}/".startswith(f"{above.prefix}/" if above.prefix else "")


def fault(path: str) -> str:
    """What is wrong with a path below a repository, as the end of a sentence; empty: nothing is."""
    if not path.isprintable():
        return "has a character that cannot be printed"
    framed = f"/{path}/"
    if "//" in framed or "/./" in framed or "/../" in framed:
        return "has an empty part, '.' or '..'"
    if "/ " in framed or " /" in framed:
        return "has a part that begins or ends with a space"
    return ""


def _checked(path: str) -> str:
    if path and (what := fault(path)):
        raise InvalidRequest(f"The path of a repository's URL {what}.")
    return path
