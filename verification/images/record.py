"""What ``make images`` has last built: the digest of what each image is made of, and how large it became."""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
DOCKERFILE: Final = "deploy/Dockerfile"
RECORD: Final = "deploy/images/built.json"
BUILT: Final = ("gateway", "console", "worker")
"""Targets that are built and started. worker-cuda weighs gigabytes and starts nothing without a GPU."""
BASE_PACKAGES: Final = (
    *("python3.11", "python3.11-venv", "ca-certificates", "libstdc++6", "passwd", "tzdata"),
    "usr-is-merged",  # in the place of usrmerge, which needs all of Perl
)
"""Debian packages of the base root, beside the essential ones."""
_INSTALL: Final = "deploy/images/install.sh"
_MIB: Final = 1024 * 1024


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """An image. inputs: digest of them. mib: of its files. packages: of Python, as locked."""

    inputs: str
    mib: int
    packages: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The committed file. base_mib: of the base root, which each image has in its size."""

    base_mib: int
    images: dict[str, Built]


def inputs(target: str, root: Path = ROOT) -> str:
    """Digest of what an image is made of, but for our code: base, Dockerfile, what is installed and how."""
    found = hashlib.sha256(" ".join(BASE_PACKAGES).encode())
    for name in (DOCKERFILE, _INSTALL, f"requirements/{target}.txt"):
        found.update(hashlib.sha256((root / name).read_bytes()).digest())
    return f"sha256:{found.hexdigest()}"


def base_tag() -> str:
    """Names the base root by the packages it was made of."""
    return hashlib.sha256(" ".join(BASE_PACKAGES).encode()).hexdigest()[:12]


def built(target: str, made_of: str, size_bytes: int, root: Path = ROOT) -> Built:
    """The entry of an image that was built of these inputs."""
    lock = (root / f"requirements/{target}.txt").read_text(encoding="utf-8")
    packages = sum("==" in line for line in lock.splitlines())
    return Built(inputs=made_of, mib=mib(size_bytes), packages=packages)


def read(path: Path = ROOT / RECORD) -> Record:
    """The record, by default as it is committed."""
    return msgspec.json.decode(path.read_bytes(), type=Record)


def write(record: Record, path: Path) -> None:
    """Replace the record."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def mib(size_bytes: int) -> int:
    """Whole MiB."""
    return round(size_bytes / _MIB)
