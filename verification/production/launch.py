"""Makes the command line of a declared service: its mounts, its variables and the chain of programs that starts it."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from signalbox.ops.up.datadir import write_private
from signalbox.program.errors import Misconfigured
from verification.production import container
from verification.production.compose import Compose, Service
from verification.production.images import Image, Mount, enter
from verification.production.machine import Machine

SECRETS: Final = "/run/secrets"
DEPLOYED: Final = "deploy/secrets"
"""Where the compose file looks for what make_secrets.py makes; here it is the data folder's ``secrets``."""
WORLD_WRITABLE: Final = 0o1777


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """How a service starts here. argv: ends in the program by nothing but exec. path: where its programs are."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    image: Image
    enter: tuple[str, ...]


class Builder:
    """Makes boxes. folder: of this run's data. replaced: paths of the compose file that lie elsewhere today."""

    def __init__(
        self, compose: Compose, machine: Machine, folder: Path, repository: Path, replaced: Mapping[str, Path]
    ) -> None:
        self._compose = compose
        self._machine = machine
        self._folder = folder
        self._repository = repository
        self._replaced = replaced

    def box(self, name: str, image: Image, *, namespace: str, hosts: str) -> Box:
        """The service's, with its files made. Raises :class:`Misconfigured` naming a file that is not there."""
        service = self._compose.services[name]
        hostname = service.hostname or name
        home = self._home(name)
        mounts = [
            *image.mounts,
            *self._names(home, image, hostname, hosts),
            Mount(str(self._scratch(home)), "/tmp", is_read_only=False),  # noqa: S108  the container's own
            *self._volumes(name, service, image),
            *self._secrets(service),
        ]
        mounts.sort(key=lambda mount: len(Path(mount.target).parts))  # what lies below another comes after it
        setpriv = self._machine.tools["setpriv"]
        inside = enter(image, setpriv, has_no_new_privileges=bool(service.security_opt))
        description = {
            "root": str(self._root()),
            "hostname": hostname,
            "workdir": image.workdir,
            "mounts": mounts,
            "is_read_only": service.read_only,
            "folders": [[folder, image.uid, image.gid] for folder in image.folders],
            "enter": [*inside, *image.argv],
        }
        spec = home / "container.json"
        write_private(spec, msgspec.json.encode(description).decode())
        return Box(
            argv=self._launcher(namespace, spec),
            environment=self._environment(service, image, hostname),
            image=image,
            enter=tuple(inside),
        )

    def _launcher(self, namespace: str, spec: Path) -> tuple[str, ...]:
        """The programs, each becoming the next by exec, that end in what ``spec`` describes."""
        tools = self._machine.tools
        return (
            *(tools["nsenter"], f"--net=/run/netns/{namespace}"),
            *(tools["unshare"], "--mount", "--uts", "--propagation", "private"),
            *(sys.executable, "-IS", str(Path(container.__file__)), str(spec)),
        )

    def beside(self, box: Box, pid: int, argv: tuple[str, ...]) -> tuple[str, ...]:
        """A command that runs in the container of ``pid``, as the service's user."""
        spaces = ("--net", "--mount", "--uts", "--root", "--wd")
        return (self._machine.tools["nsenter"], "--target", str(pid), *spaces, *box.enter, *argv)

    def _root(self) -> Path:
        """A folder that each container covers with its own root, in its own mount namespace."""
        root = self._folder / "run" / "root"
        root.mkdir(parents=True, exist_ok=True)
        return root

    def _home(self, name: str) -> Path:
        home = self._folder / "run" / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _scratch(self, home: Path) -> Path:
        """A new container's ``/tmp``."""
        scratch = home / "tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        scratch.chmod(WORLD_WRITABLE)
        return scratch

    def _names(self, home: Path, image: Image, hostname: str, hosts: str) -> Iterator[Mount]:
        """The files of /etc that are a container's own."""
        files = {
            "hosts": hosts,
            "hostname": f"{hostname}\n",
            "resolv.conf": "options attempts:1 timeout:1\n",
            "passwd": _with_line("/etc/passwd", f"{image.user}:x:{image.uid}:{image.gid}::{image.workdir}:/bin/false"),
            "group": _with_line("/etc/group", f"{image.user}:x:{image.gid}:"),
        }
        for name, text in files.items():
            path = home / name
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
            yield Mount(str(path), f"/etc/{name}")

    def _volumes(self, name: str, service: Service, image: Image) -> Iterator[Mount]:
        for text in service.volumes:
            source, target, *options = text.split(":")
            if options not in ([], ["ro"], ["rw"]):
                raise Misconfigured(f"{name}: the mount {text} has options not known here.")
            is_file = source.startswith((".", "/"))
            where = self._file(source) if is_file else self._volume(source, image)
            yield Mount(str(where), target, is_read_only=options == ["ro"])

    def _secrets(self, service: Service) -> Iterator[Mount]:
        for secret in service.secrets:
            where = self._file(self._compose.secrets[secret].file)
            yield Mount(str(where), f"{SECRETS}/{secret}")

    def _volume(self, name: str, image: Image) -> Path:
        """A named volume. The first image that mounts it gives it its owner, as its own folder would."""
        folder = self._folder / "volumes" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            os.chown(folder, image.uid, image.gid)
        return folder

    def _file(self, source: str) -> Path:
        """A path of the compose file on this machine."""
        path = Path(source)
        for deployed, here in self._replaced.items():
            if path.is_relative_to(deployed):
                path = here / path.relative_to(deployed)
        path = path if path.is_absolute() else self._repository / path
        if not path.exists():
            raise Misconfigured(f"There is no {path}, which the compose file names as {source}.")
        return path

    def _environment(self, service: Service, image: Image, hostname: str) -> dict[str, str]:
        """What an engine gives the program: the image's variables, the file's, those of its env_file."""
        given = {"PATH": image.path, "HOSTNAME": hostname, "HOME": image.workdir}
        given |= image.environment
        if service.env_file:
            given |= _variables(self._file(service.env_file))
        return given | {name: str(value) for name, value in service.environment.items()}


def _with_line(path: str, line: str) -> str:
    """This machine's file, and one more entry where it has none of that name."""
    text = Path(path).read_text(encoding="utf-8")
    name = line.partition(":")[0]
    is_there = any(each.startswith(f"{name}:") for each in text.splitlines())
    return text if is_there else f"{text.rstrip()}\n{line}\n"


def _variables(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}
