"""Uploaded archives: tar, tar.gz and zip. Whatever comes is laid out below its folder or refused in our words.

What is laid out is plain files and folders only, within the caps, nothing beside the folder, and exactly one
SavedModel; what is refused is an ``InvalidRequest``. Then the same bytes as a ``saved_model.pb``.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Hashable
from pathlib import Path
from typing import Final

from console.catalog.archives import SAVED_MODEL, Caps, unpack
from signalbox.program.errors import InvalidRequest, TooLarge

SEEDS: Final = Path(__file__).parent / "corpus" / "archives"
SHARE: Final = 15_000
TOKENS: Final = (
    b"saved_model.pb",
    b"../",
    b"/",
    b"./",
    b"ustar\x0000",
    b"ustar  \x00",
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"PK\x06\x07",
    b"\x1f\x8b\x08",
    b"L",
    b"K",
    b"x",
    b"g",
    b"1",
    b"2",
    b"5",
    b"S",
    b"00000000017\x00",
    b"77777777777\x00",
    b"\x80\xff\xff\xff\xff\xff\xff\xff",
    b"30 size=99999999999999\n",
    b"22 path=/etc/passwd\n",
    b"27 GNU.sparse.major=1\n",
    bytes(512),
)
CAPS: Final = Caps(max_bytes=1 << 20, max_members=20)
_HOME: Final = Path(
    tempfile.mkdtemp(
        prefix="signalbox-fuzz-archives-",
        dir=(
            "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  memory, so that a run is cheap
        ),
    )
)
_archive, _into, _beside = _HOME / "archive", _HOME / "into", _HOME / "beside"
_beside.write_bytes(b"untouched")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)


def one(data: bytes) -> Hashable:
    """One upload."""
    _archive.write_bytes(data)
    _into.mkdir()
    try:
        folder = unpack(_archive, _into, CAPS)
    except TooLarge as error:
        return str(error)[:30]
    except InvalidRequest as error:
        return str(error).rpartition("'")[2][:30]
    else:
        assert folder.is_relative_to(_into)
        assert (folder / SAVED_MODEL).is_file()
        return "laid out"
    finally:
        found = list(_into.rglob("*"))
        assert len(found) <= CAPS.max_members * 12
        assert all((path.is_file() or path.is_dir()) and not path.is_symlink() for path in found)
        assert sum(path.stat().st_size for path in found if path.is_file()) <= CAPS.max_bytes + (1 << 20)
        assert {path.name for path in _HOME.iterdir()} == {"archive", "into", "beside"}
        assert _beside.read_bytes() == b"untouched"
        shutil.rmtree(_into)
