"""Reads one target of our Dockerfile: its variables, folder, user and what is copied into it."""

import re
import shlex
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program.errors import Misconfigured

_DOCUMENTS: Final = "/usr/share/doc/"
"""What is copied below it serves no program."""
_MADE_ELSEWHERE: Final = frozenset({"ARG", "EXPOSE", "LABEL"})
"""What says nothing of how the program runs."""


class BuildTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One target. copied: (in the repository, in the image). uid: of the user it runs as, 0 = root.

    environment: without PATH, which says where the image has its programs.
    """

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
        if word == "ARG" and not name:
            continue  # the base image is the builder's choice
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
        pairs = dict(part.partition("=")[::2] for part in shlex.split(rest))
        pairs.pop("PATH", None)
        return replace(image, environment={**image.environment, **pairs})
    if word == "WORKDIR":
        return replace(image, workdir=rest)
    if word == "USER":
        number = int(rest.partition(":")[0])
        name = next((user for user, uid in users.items() if uid == number), "")
        if not name or rest != f"{number}:{number}":
            raise Misconfigured(f"USER {rest}: two equal numbers, of a user that the Dockerfile makes, are known here.")
        return replace(image, user=name, uid=number)
    if word == "CMD":
        return replace(image, command=tuple(msgspec.json.decode(rest, type=list[str])))
    if word == "COPY":
        *sources, target = shlex.split(rest)
        if target.startswith(_DOCUMENTS):
            return image
        (source,) = sources
        return replace(image, copied=(*image.copied, (source, f"{image.workdir}/{target}")))
    if word in _MADE_ELSEWHERE:
        return image
    raise Misconfigured(f"The Dockerfile's {word} is not known here.")


def _lines(text: str) -> list[str]:
    """Instructions, each on one line."""
    whole = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    return [line.strip() for line in whole.replace("\\\n", " ").splitlines() if line.strip()]


def _useradds(run: str) -> list[tuple[str, str]]:
    return re.findall(r"useradd [^&|;]*--uid (\d+) [^&|;]*?(\w+)\s*(?:&&|$)", run)
