"""``signalbox login``: keep a front and its key, or a console and an operator's token, in a profile."""

import argparse
import getpass
import sys
from pathlib import Path

from signalbox.ops import http, output, profiles
from signalbox.ops.profiles import DEFAULT, Profile, Profiles
from signalbox.program.errors import Misconfigured

_EPILOG = """Examples:

  signalbox login https://inference.example
  signalbox login https://a.example https://b.example --profile staging
  signalbox login --console https://console.example --profile staging
  signalbox login https://inference.example --key-file /run/secrets/key
  signalbox login --list

Keys and tokens are asked for, or read from files or from standard input, a line each; never given as arguments, where
other users of the machine could read them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is kept, and under which name."""
    parser.description = (
        "Keep the address and API key of a front, or the address of a console and an operator's token, so that other "
        "commands find them. Each is tried before it is kept. The profile is used from now on; others by --profile. "
        f"They are kept in {profiles.path()}, which you alone may read."
    )
    parser.epilog = _EPILOG
    parser.add_argument("url", nargs="*", metavar="URL", help="A front; several: each may answer.")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="File with the API key.")
    parser.add_argument("--console", default="", metavar="URL", help="A console, for operators.")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="File with the operator's token.")
    parser.add_argument("--profile", default="", metavar="NAME", help="Name of the profile (default: the one in use).")
    acts = parser.add_mutually_exclusive_group()
    acts.add_argument("--list", action="store_true", help="Show the profiles, without keys.")
    acts.add_argument("--use", action="store_true", help="Use --profile from now on, as it is.")
    acts.add_argument("--forget", action="store_true", help="Remove --profile.")


def run(arguments: argparse.Namespace) -> int:
    """Keep, use, forget or list; the exit status."""
    kept = profiles.load()
    name = arguments.profile or kept.chosen or DEFAULT
    if arguments.list:
        return _list(kept)
    if arguments.use or arguments.forget:
        return _choose(kept, name, is_forgotten=arguments.forget)
    if not arguments.url and not arguments.console:
        raise Misconfigured("Name a front (signalbox login URL) or a console (signalbox login --console URL).")
    profile = kept.by_name.get(name, Profile())
    if arguments.url:
        urls = tuple(url.rstrip("/") for url in arguments.url)
        key = _secret(arguments.key_file, f"API key for {urls[0]}: ")
        models = [_models(url, key) for url in urls]
        profile = profile._replace(fronts=urls, key=key)
        output.note(f"{', '.join(urls)}: the key may call {models[0]}")
    if arguments.console:
        console = arguments.console.rstrip("/")
        token = _secret(arguments.token_file, f"Token for {console}, made on its settings page: ")
        with http.Rest(console, token) as rest:
            me = rest.ask("GET", "/api/me")
        profile = profile._replace(console=console, token=token)
        output.note(f"{console}: {me['name']}, {me['role']}")
    profiles.save(Profiles(name, {**kept.by_name, name: profile}))
    output.note(f"kept as profile {name} in {profiles.path()}")
    return 0


def _models(url: str, key: str) -> str:
    """How many models a key may call, in words. Raises what :meth:`http.Rest.ask` does."""
    with http.Rest(url, key) as rest:
        found = rest.ask("GET", "/v1/models")
    count = len(found.get("models", ()))
    return f"{count} model{'' if count == 1 else 's'}"


def _list(kept: Profiles) -> int:
    rows = [
        ("*" if name == kept.chosen else "", name, one.fronts, "yes" if one.key else "", one.console)
        for name, one in sorted(kept.by_name.items())
    ]
    output.emit_table(("", "PROFILE", "FRONTS", "KEY", "CONSOLE"), rows, "no profile: signalbox login URL makes one")
    return 0


def _choose(kept: Profiles, name: str, *, is_forgotten: bool) -> int:
    if name not in kept.by_name:
        raise Misconfigured(f"There is no profile {name!r}; there are: {', '.join(sorted(kept.by_name)) or 'none'}.")
    if is_forgotten:
        left = {other: one for other, one in kept.by_name.items() if other != name}
        chosen = kept.chosen if kept.chosen in left else next(iter(sorted(left)), DEFAULT)
        profiles.save(Profiles(chosen, left))
        output.note(f"forgot {name}" + (f"; {chosen} is used from now on" if chosen in left else ""))
        return 0
    profiles.save(Profiles(name, kept.by_name))
    output.note(f"{name} is used from now on")
    return 0


def _secret(file: Path | None, prompt: str) -> str:
    """What the file, the terminal or the next line of standard input has. Raises :class:`Misconfigured`."""
    if file is not None:
        return profiles.secret_in(file)
    text = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline()
    if not text.strip():
        raise Misconfigured("No key or token was given.")
    return text.strip()
