"""Unpacks an uploaded model archive (tar, tar.gz, zip) and trusts nothing in it.

Own reader rather than ``extractall``: only plain files and folders, no absolute paths, no ``..``,
no links or devices, no name twice (also not by case), counted bytes rather than declared ones. The
libraries below see the archive through a reader that gives out neither much at once nor much in all,
since they believe the sizes that headers declare.
"""

import errno
import gzip
import io
import re
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final, NoReturn, cast

from signalbox.program.errors import InvalidRequest, SignalboxError, TooLarge, Unavailable

_CHUNK: Final = 1024 * 1024
_MAX_RATIO: Final = 200
"""Content may be this many times the archive; more is a bomb."""
_RATIO_FREE_BYTES: Final = 16 * 1024 * 1024
_MEMBER_BYTES: Final = 4096
"""Of headers, padding and names that come with one member."""
_MAX_DEPTH: Final = 12
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f\\]{1,200}\Z")
SAVED_MODEL: Final = "saved_model.pb"
_GZIP: Final = b"\x1f\x8b"
_ZIP_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""Compressions that Python unpacks piece by piece; with any other, one read may give hundreds of megabytes."""
_DAMAGE: Final = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    ArithmeticError,
    LookupError,
)
"""What the readers raise for archives that are cut off, damaged or made on purpose."""
_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
"""Errors that say nothing of the archive."""


@dataclass(frozen=True)
class Caps:
    """max_bytes: of all files together. max_members: files and folders."""

    max_bytes: int
    max_members: int


def unpack(archive: Path, into: Path, caps: Caps) -> Path:
    """Lay the archive out in the empty folder ``into``; returns the folder that holds ``saved_model.pb``.

    That folder is the archive's root or one nested below it (``digits/1/saved_model.pb`` is fine, two
    SavedModels are not). Raises :class:`InvalidRequest` naming the member, or :class:`TooLarge`.
    """
    allowed = max(archive.stat().st_size * _MAX_RATIO, _RATIO_FREE_BYTES)
    budget = _Budget(min(caps.max_bytes, allowed), is_ratio=allowed < caps.max_bytes)
    with archive.open("rb") as file:
        if _is_zip(file):
            _unpack_zip(file, into, caps, budget)
        else:
            _unpack_tar(file, into, caps, budget)
    found = sorted(into.rglob(SAVED_MODEL))
    if not found:
        raise InvalidRequest(f"The archive holds no {SAVED_MODEL}.")
    if len(found) > 1:
        raise InvalidRequest(f"The archive holds {len(found)} SavedModels; upload one version at a time.")
    if not found[0].is_file():
        raise InvalidRequest(f"{SAVED_MODEL} in the archive is no file.")
    return found[0].parent


def _is_zip(file: IO[bytes]) -> bool:
    try:
        return zipfile.is_zipfile(file)
    except _DAMAGE as error:  # it means to be one, and names disks that are not there
        raise _damaged("zip", error) from error


class _Bounded(io.RawIOBase):
    """A file of which one read gives at most ``at_once`` bytes, and which has at most ``in_all``.

    Asking for more raises :class:`TooLarge`: a header has declared a size that no honest one has.
    """

    def __init__(self, file: IO[bytes], *, at_once: int, in_all: int, budget: "_Budget") -> None:
        self._file, self._at_once, self._in_all, self._budget = file, at_once, in_all, budget

    def read(self, size: int = -1) -> bytes:
        if size > self._at_once:
            raise TooLarge("A header of the archive is larger than any honest one; nothing was kept.")
        data = self._file.read(self._at_once if size < 0 else size)
        if self._file.tell() > self._in_all:
            self._budget.refuse()
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Past the end is where a compressed bomb lies: not one byte further than allowed."""
        if whence == 0 and offset > self._in_all:
            self._budget.refuse()
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


class _Budget:
    def __init__(self, left: int, *, is_ratio: bool) -> None:
        self._left = left
        self._is_ratio = is_ratio

    @property
    def left(self) -> int:
        return self._left

    def spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            self.refuse()

    def refuse(self) -> NoReturn:
        why = f"more than {_MAX_RATIO} times its own size" if self._is_ratio else "too much"
        raise TooLarge(f"The archive unpacks to {why}; nothing was kept.")


def _unpack_zip(file: IO[bytes], into: Path, caps: Caps, budget: _Budget) -> None:
    size = file.seek(0, io.SEEK_END)
    listing = (caps.max_members + 1) * _MEMBER_BYTES  # the table of contents is read at once
    bounded = _Bounded(file, at_once=max(listing, 2 * _CHUNK), in_all=size, budget=budget)
    try:
        with zipfile.ZipFile(bounded) as opened:
            infos = opened.infolist()
            _check_count(len(infos), caps)
            names = _Names()
            for info in infos:
                mode = info.external_attr >> 16
                if mode and stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
                    raise InvalidRequest(f"{info.filename!r} is a link or a device; plain files only.")
                if info.flag_bits & 0x1:
                    raise InvalidRequest(f"{info.filename!r} is encrypted.")
                if info.compress_type not in _ZIP_METHODS:
                    raise InvalidRequest(
                        f"{info.filename!r} is compressed by a method that is not taken;"
                        " make the zip with deflate, or upload a .tar.gz."
                    )
                path = names.check(info.filename)
                if info.is_dir():
                    (into / path).mkdir(parents=True, exist_ok=True)
                else:
                    with opened.open(info) as source:
                        _copy(source, into / path, budget)
    except _DAMAGE as error:
        raise _damaged("zip", error) from error


def _unpack_tar(file: IO[bytes], into: Path, caps: Caps, budget: _Budget) -> None:
    file.seek(0)
    head = file.read(len(_GZIP))
    file.seek(0)
    plain = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if head == _GZIP else file
    bounded = _Bounded(
        plain, at_once=2 * _CHUNK, in_all=budget.left + (caps.max_members + 4) * _MEMBER_BYTES, budget=budget
    )
    is_begun = False
    try:
        with tarfile.open(fileobj=bounded, mode="r:") as opened:
            names = _Names()
            for count, info in enumerate(opened, 1):
                is_begun = True
                _check_count(count, caps)
                if not (info.isreg() or info.isdir()):
                    raise InvalidRequest(f"{info.name!r} is a link or a device; plain files only.")
                path = names.check(info.name)
                if info.isdir():
                    (into / path).mkdir(parents=True, exist_ok=True)
                    continue
                source = opened.extractfile(info)
                if source is not None:
                    _copy(source, into / path, budget)
    except _DAMAGE as error:
        if not is_begun:
            raise InvalidRequest("Upload a .tar, .tar.gz or .zip archive of a SavedModel.") from error
        raise _damaged("tar", error) from error


def _damaged(kind: str, error: Exception) -> SignalboxError:
    if isinstance(error, OSError) and error.errno in _DISK:
        return Unavailable(f"The console cannot unpack the archive: {_words(error)}.")
    return InvalidRequest(f"The {kind} archive is damaged: {_words(error)}.")


def _words(error: BaseException) -> str:
    """Words of a disk error without the path at its end, which is this machine's."""
    return error.strerror or "it cannot be laid out" if isinstance(error, OSError) else str(error)


class _Names:
    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._spelling: dict[str, str] = {}

    def check(self, name: str) -> PurePosixPath:
        """The member's safe relative path. Raises :class:`InvalidRequest`."""
        path = PurePosixPath(name)
        parts = [part for part in path.parts if part != "."]
        if path.is_absolute() or ".." in parts or re.match(r"[A-Za-z]:", name):
            raise InvalidRequest(f"{name!r} points outside the archive.")
        if len(parts) > _MAX_DEPTH or not all(_NAME.match(part) for part in parts):
            raise InvalidRequest(f"{name!r} is too deep or has characters that are not allowed.")
        self._check_spelling(name, parts)
        folded = _folded(parts)
        if folded and folded in self._seen:
            raise InvalidRequest(f"{name!r} is in the archive twice.")
        self._seen.add(folded)
        return PurePosixPath(*parts)

    def _check_spelling(self, name: str, parts: list[str]) -> None:
        """Folders too: ``A/x`` and ``a/y`` are one folder on some disks and two on others."""
        for depth in range(1, len(parts)):
            there = "/".join(parts[:depth])
            if self._spelling.setdefault(_folded(parts[:depth]), there) != there:
                raise InvalidRequest(f"A folder of {name!r} is in the archive twice, spelled apart.")


def _folded(parts: list[str]) -> str:
    """One form for all spellings of a name that differ by case or composed letters."""
    return unicodedata.normalize("NFC", "/".join(parts).casefold())


def _check_count(count: int, caps: Caps) -> None:
    if count > caps.max_members:
        raise TooLarge(f"The archive has more than {caps.max_members} members.")


def _copy(source: IO[bytes], target: Path, budget: _Budget) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as sink:
        for chunk in _chunks(source):
            budget.spend(len(chunk))
            sink.write(chunk)


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK):
        yield chunk
