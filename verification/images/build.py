"""Builds a root of Debian's packages, and images on it, with nothing of an engine: mmdebstrap and buildah."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from signalbox.program.errors import Misconfigured, Unavailable
from verification.images import pip
from verification.images.record import BASE_PACKAGES, DOCKERFILE, ROOT, base_tag

RELEASE: Final = "bookworm"
BASE: Final = "localhost/signalbox-base"
_POLICY: Final = '{"default": [{"type": "insecureAcceptAnything"}]}'
"""Only what is built here is read."""
_MERGED_USR: Final = "/usr/share/mmdebstrap/hooks/merged-usr"
_LEFT_OUT: Final = ("/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/doc/*")
_CLEAN: Final = (
    'rm -rf "$1"/etc/resolv.conf "$1"/etc/hostname "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/var/cache/* "$1"/var/log/*'
)
"""What mmdebstrap has taken from this machine, and what a package leaves behind."""


class Config(msgspec.Struct, frozen=True, kw_only=True, rename={"environment": "Env", "workdir": "WorkingDir"}):
    """How an engine would start an image."""

    environment: tuple[str, ...]
    workdir: str
    user: str = msgspec.field(name="User")
    command: tuple[str, ...] = msgspec.field(name="Cmd")
    labels: dict[str, str] = msgspec.field(name="Labels")


class Builder:
    """buildah with a storage of its own below ``folder``."""

    def __init__(self, folder: Path, *, revision: str, version: str) -> None:
        self.folder = folder.resolve()
        self._revision = revision
        self._version = version
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("tmp", "storage", "run"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "policy.json").write_text(_POLICY, encoding="utf-8")

    def base(self, mirror: str = "", *, anew: bool = False) -> str:
        """The image of the base root, made where it is not there yet; its name."""
        name = f"{BASE}:{base_tag()}"
        if not anew and self._has(name):
            return name
        root = self.folder / "base.tar"
        root.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="signalbox-images-") as secret:
            conf = Path(secret) / "apt.conf"
            conf.write_text(_apt_configuration(), encoding="utf-8")
            argv = ["mmdebstrap", "--variant=essential", f"--include={','.join(BASE_PACKAGES)}", f"--aptopt={conf}"]
            argv.append(f"--hook-dir={_MERGED_USR}")
            argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
            argv += ["--dpkgopt=path-include=/usr/share/doc/*/copyright", f"--customize-hook={_CLEAN}"]
            _run([*argv, RELEASE, str(root), *([mirror] if mirror else [])])
        container = self._buildah("from", "scratch").strip()
        try:
            self._buildah("add", "--quiet", container, str(root), "/")
            self._buildah("commit", "--quiet", container, name)
        finally:
            self._buildah("rm", container)
        root.unlink()
        return name

    def build(self, target: str, base: str) -> str:
        """Build one target; the image's name."""
        name = f"localhost/signalbox-{target}:{self._version}"
        given = {"BASE": base, "VERSION": self._version, "REVISION": self._revision}
        with tempfile.TemporaryDirectory(prefix="signalbox-images-") as secret:
            argv = [
                "build",
                "--isolation",
                "chroot",
                "--network",
                "host",
                "--pull-never",
                "--layers",
                "--format",
                "oci",
            ]
            argv += [f"--build-arg={key}={value}" for key, value in given.items()]
            argv += [*pip.secrets(Path(secret)), "--file", str(ROOT / DOCKERFILE), "--target", target, "--tag", name]
            self._buildah(*argv, str(ROOT), is_shown=True)
        return name

    def config(self, image: str) -> Config:
        """How an image says it is to be started."""
        told: dict[str, Any] = msgspec.json.decode(self._buildah("inspect", "--type", "image", image))
        return msgspec.convert(told["OCIv1"]["config"], Config)

    def size_bytes(self, image: str) -> int:
        """Bytes of an image's files, its base's among them."""
        with self.root(image) as folder:
            told = _run(["du", "--summarize", "--block-size=1", "--one-file-system", str(folder)])
        return int(told.split()[0])

    @contextlib.contextmanager
    def root(self, image: str) -> Iterator[Path]:
        """The root folder of a container of an image, while it lasts."""
        container = self._buildah("from", "--pull-never", image).strip()
        try:
            yield Path(self._buildah("mount", container).strip())
        finally:
            self._buildah("umount", container)
            self._buildah("rm", container)

    def _has(self, image: str) -> bool:
        return bool(self._buildah("images", "--quiet", "--filter", f"reference={image}").strip())

    def _buildah(self, *arguments: str, is_shown: bool = False) -> str:
        storage = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        command, *more = arguments
        policy = ["--signature-policy", str(self.folder / "policy.json")] if command in _READING else []
        return _run(
            ["buildah", "--storage-driver", "overlay", *storage, command, *policy, *more],
            env={**os.environ, "TMPDIR": str(self.folder / "tmp")},
            is_shown=is_shown,
        )


_READING: Final = frozenset({"from", "build", "commit"})


def need(*programs: str) -> None:
    """Raise :class:`Misconfigured` unless they are installed and this is root."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise Misconfigured(f"{', '.join(missing)} not found; `make images` installs Debian's packages of that name.")
    if os.geteuid():
        raise Misconfigured("Building and entering roots needs root: sudo -E make images.")


def revision() -> str:
    """The commit that is checked out."""
    return _run(["git", "-C", str(ROOT), "rev-parse", "HEAD"]).strip()


def _apt_configuration() -> str:
    """How this machine's apt fetches."""
    told = _run(["apt-config", "dump"])
    return "\n".join(line for line in told.splitlines() if line.startswith("Acquire::")) + "\n"


def _run(argv: Sequence[str], *, env: dict[str, str] | None = None, is_shown: bool = False) -> str:
    """What it prints; shown: that goes to the terminal. Raises :class:`Unavailable` with its last words."""
    out = None if is_shown else subprocess.PIPE
    done = subprocess.run(
        argv, env=env, stdout=out, stderr=None if is_shown else subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        words = (done.stderr or "").strip().splitlines()[-5:]
        raise Unavailable(f"`{' '.join(argv[:8])} ...` ended with status {done.returncode}. {' '.join(words)}")
    return done.stdout or ""
