"""``signalbox tyk-apps``: write Tyk's API definitions with the secret that the plugins ask for.

For a Tyk that is not one of ``docker-compose.yml``: ``deploy/make_secrets.py`` writes the same files there, on machines
without Signalbox.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import signalbox
from signalbox.program.errors import Misconfigured
from signalbox.program.settings import text_of

SECRET: Final = "SIGNALBOX_GATEWAY_SECRET"  # noqa: S105  the name of a setting
APPS: Final = Path(signalbox.__file__).resolve().parents[1] / "gateway_plugin" / "tyk" / "apps"
"""Where an installation, an image and the repository have them."""
MODE: Final = 0o640
"""Of the files: Tyk may run as another user of the folder's group."""
_EXAMPLES: Final = """\
Reads SIGNALBOX_GATEWAY_SECRET or SIGNALBOX_GATEWAY_SECRET_FILE, which the plugins have too.

  signalbox tyk-apps --output /opt/tyk-gateway/apps
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to write."""
    parser.description = (
        "Write Tyk's API definitions into a folder, each that asks a plugin with the secret it shows the plugin. "
        "Files that are there under other names stay."
    )
    parser.epilog = _EXAMPLES
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="Tyk's app_path; made if need be")


def run(arguments: argparse.Namespace) -> int:
    """Write them; the exit status. Raises :class:`Misconfigured`."""
    folder: Path = arguments.output
    try:
        written = write(APPS, folder, _secret(os.environ))
    except OSError as error:
        raise Misconfigured(f"{error.filename or folder}: {error.strerror}.") from error
    sys.stdout.write(f"{folder}: {len(written)} API definitions\n")
    return 0


def write(source: Path, folder: Path, secret: str) -> list[str]:
    """Write each definition of ``source`` whole or not at all; their names. Raises :class:`OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted(source.glob("*.json")):
        text = json.dumps(with_secret(json.loads(path.read_bytes()), secret), indent=2)
        partial = folder / f".{path.name}.{os.getpid()}"  # Tyk reads *.json alone
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE), "w") as file:
            file.write(text)
        partial.replace(folder / path.name)
        written.append(path.name)
    return written


def with_secret(definition: Mapping[str, Any], secret: str) -> dict[str, Any]:
    """The definition as Tyk gets it: one whose hooks are the plugin's shows it the secret."""
    made = dict(definition)
    if made.get("custom_middleware", {}).get("driver") == "grpc":
        made["config_data"] = {**(made.get("config_data") or {}), "secret": secret}
    return made


def _secret(env: Mapping[str, str]) -> str:
    try:
        secret = (text_of(SECRET, env) or "").strip()
    except OSError as error:
        raise Misconfigured(f"{SECRET}_FILE cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise Misconfigured(f"{error}.") from error
    if not secret:
        raise Misconfigured(f"{SECRET} is not set: it, or {SECRET}_FILE, has the plugins' secret.")
    return secret
