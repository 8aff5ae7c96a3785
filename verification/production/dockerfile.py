"""Reads one target of our Dockerfile: its variables, folder, user and what is copied into it."""

import re
import shlex
from pathlib import Path

import msgspec

from signalbox.program.errors import Misconfigured


class BuildTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One target. copied: (in the repository, in the image). uid: of the user it runs as, 0 = root."""

    environment: dict[str, str] = {}
    workdir: str = "/"
    user: str = "root"
    uid: int = 0
    command: tuple[str, ...] = ()
    copied: tuple[tuple[str, str], ...] = ()


def read(path: Path, target: str) -> BuildTarget:
    """The target with all that the targets it is made from give it. Raises :class:`Misconfigured`."""
    images: dict[str, BuildTarget] = {}
    users: dict[str, int] = {}
    name = ""
    for line in _lines(path.read_text(encoding="utf-8")):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            images[name] = images.get(base, BuildTarget())
        elif word == "RUN":
            users |= {user: int(uid) for uid, user in _useradds(rest)}
        else:
            images[name] = _changed(images[name], word, rest, users)
    if target not in images:
        raise Misconfigured(f"{path} has no target {target}.")
    return images[target]


def _changed(image: BuildTarget, word: str, rest: str, users: dict[str, int]) -> BuildTarget:
    replace = msgspec.structs.replace
    if word == "ENV":
        pairs = (part.partition("=")[::2] for part in shlex.split(rest))
        return replace(image, environment={**image.environment, **dict(pairs)})
    if word == "WORKDIR":
        return replace(image, workdir=rest)
    if word == "USER":
        return replace(image, user=rest, uid=users[rest])
    if word == "CMD":
        return replace(image, command=tuple(msgspec.json.decode(rest, type=list[str])))
    if word == "COPY":
        source, target = shlex.split(rest)
        return replace(image, copied=(*image.copied, (source, f"{image.workdir}/{target}")))
    if word == "EXPOSE":
        return image
    raise Misconfigured(f"The Dockerfile's {word} is not known here.")


def _lines(text: str) -> list[str]:
    """Instructions, each on one line."""
    whole = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    return [line.strip() for line in whole.replace("\\\n", " ").splitlines() if line.strip()]


def _useradds(run: str) -> list[tuple[str, str]]:
    return re.findall(r"useradd [^&|;]*--uid (\d+) [^&|;]*?(\w+)\s*(?:&&|$)", run)
