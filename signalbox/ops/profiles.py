"""Where commands find a front and a key, a console and an operator's token, and the file of named profiles.

Searched in this order: what the command line names; the profile that it names; a ``make up`` that runs in this folder;
the profile that ``signalbox login`` was given last.
"""

import argparse
import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from signalbox.program.errors import Misconfigured

DEFAULT: Final = "default"
MOST_FILE_BYTES: Final = 1024 * 1024
_UP_DIR: Final = Path(".signalbox")


class Profile(NamedTuple):
    """One place. fronts: URLs, of which any answers. key: of a caller. token: an operator's, for the console."""

    fronts: tuple[str, ...] = ()
    key: str = ""
    console: str = ""
    token: str = ""


class Profiles(NamedTuple):
    """All that the file has. chosen: name of the one that is used where none is named."""

    chosen: str
    by_name: Mapping[str, Profile]


def path() -> Path:
    """The file of profiles: below ``$XDG_CONFIG_HOME``, which is ``~/.config`` where it is not set.

    Raises :class:`Misconfigured` for a user without a home.
    """
    base = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        folder = Path(base) if base.startswith("/") else Path.home() / ".config"
    except RuntimeError as error:
        raise Misconfigured("There is no home for profiles: set HOME or XDG_CONFIG_HOME.") from error
    return folder / "signalbox" / "profiles.json"


def load() -> Profiles:
    """What the file has. Raises :class:`Misconfigured` where others may read it, or it is none of ours."""
    file = path()
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            data = opened.read(MOST_FILE_BYTES)
    except FileNotFoundError:
        return Profiles(DEFAULT, {})
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read: {error.strerror}.") from error
    if mode & 0o077:
        raise Misconfigured(
            f"Others may read {file}, which holds keys (mode {mode:o}). Run: chmod 600 {file}; and replace the keys "
            "if somebody may have read them."
        )
    try:
        doc = json.loads(data)
        found = {name: _profile(one) for name, one in doc["profiles"].items()}
        return Profiles(str(doc["chosen"]), found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Misconfigured(f"{file} is no file of profiles. Remove it, then run `signalbox login URL`.") from error


def save(profiles: Profiles) -> None:
    """Replace the file in one step, readable by us only. Raises :class:`Misconfigured`."""
    file = path()
    doc = {"chosen": profiles.chosen, "profiles": {name: one._asdict() for name, one in profiles.by_name.items()}}
    scratch = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(json.dumps(doc, indent=2) + "\n")
        scratch.replace(file)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise Misconfigured(f"{file} cannot be written: {error.strerror}.") from error


def add_front_options(parser: argparse.ArgumentParser) -> None:
    """Where a caller's command finds its front and key."""
    group = _place_options(parser)
    group.add_argument("--front", action="append", metavar="URL", help="A front; several: each may answer.")
    group.add_argument("--key-file", type=Path, metavar="FILE", help="File with the API key for --front.")


def add_console_options(parser: argparse.ArgumentParser) -> None:
    """Where an operator's command finds the console and token."""
    group = _place_options(parser)
    group.add_argument("--console", default="", metavar="URL", help="Another console, with --token-file.")
    group.add_argument("--token-file", type=Path, metavar="FILE", help="File with an operator's token for --console.")


def _place_options(parser: argparse.ArgumentParser) -> Any:
    group = parser.add_argument_group(
        "where", "Default: the `make up` that runs in this folder, else the profile of the last `signalbox login`."
    )
    profile = group.add_argument(
        "--profile", metavar="NAME", help="A profile that `signalbox login --profile NAME` made."
    )
    vars(profile)["completer"] = lambda **_: sorted(load().by_name)  # for shells
    group.add_argument("--data", type=Path, metavar="DIR", help="Folder of a running `make up` (.signalbox).")
    return group


def front_of(arguments: argparse.Namespace) -> Profile:
    """The place with its fronts and key. Raises :class:`Misconfigured` with the mend."""
    if arguments.front:
        if arguments.key_file is None:
            raise Misconfigured("Give --key-file with --front, or keep both in a profile: signalbox login URL.")
        return Profile(fronts=tuple(arguments.front), key=secret_in(arguments.key_file))
    found = _found(arguments)
    if not found.fronts or not found.key:
        raise Misconfigured("The profile has no front and key. Add them: signalbox login URL.")
    return found


def console_of(arguments: argparse.Namespace) -> Profile:
    """The place with its console and token. Raises :class:`Misconfigured` with the mend."""
    if arguments.console:
        if arguments.token_file is None:
            raise Misconfigured("Give --token-file with --console: an operator makes a token on the settings page.")
        return Profile(console=arguments.console, token=secret_in(arguments.token_file))
    found = _found(arguments)
    if not found.console or not found.token:
        raise Misconfigured("The profile has no console and token. Add them: signalbox login --console URL.")
    return found


def secret_in(file: Path) -> str:
    """The key or token that a file holds. Raises :class:`Misconfigured`."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{file} cannot be read: {error}.") from error
    if not text:
        raise Misconfigured(f"{file} is empty.")
    return text


def _found(arguments: argparse.Namespace) -> Profile:
    if arguments.profile:
        profiles = load()
        if arguments.profile not in profiles.by_name:
            known = ", ".join(sorted(profiles.by_name)) or "none"
            raise Misconfigured(f"There is no profile {arguments.profile!r}; there are: {known}.")
        return profiles.by_name[arguments.profile]
    data = arguments.data or _UP_DIR
    if arguments.data or (data / "up.json").exists():
        return _running(data)
    profiles = load()
    if profiles.chosen not in profiles.by_name:
        raise Misconfigured("Nothing says where to go. Run `signalbox login URL`, or start `make up` in this folder.")
    return profiles.by_name[profiles.chosen]


def _running(data: Path) -> Profile:
    try:
        doc = json.loads((data / "up.json").read_text())
        token = data / "secrets" / "operator_token"
        return Profile(
            fronts=(str(doc["front"]),),
            key=str(doc.get("api_key") or ""),
            console=str(doc["console"]),
            token=token.read_text().strip() if token.exists() else "",
        )
    except (OSError, ValueError, KeyError) as error:
        raise Misconfigured(f"No `make up` runs in {data} ({error}).") from error


def _profile(doc: Mapping[str, Any]) -> Profile:
    return Profile(
        fronts=tuple(map(str, doc.get("fronts") or ())),
        key=str(doc.get("key") or ""),
        console=str(doc.get("console") or ""),
        token=str(doc.get("token") or ""),
    )
