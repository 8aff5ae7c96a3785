# ruff: noqa: INP001  a script for machines without Signalbox installed, no package
"""Random passwords for docker-compose.yml, into ``deploy/secrets/``: ``python3 deploy/make_secrets.py``.

Needs nothing but Python. Passwords that exist are kept, so it may be run again (and must be, when ``tyk/apps``
changes: Tyk gets copies that hold the secret it shares with the plugins); delete a file to have it made anew.
The folder is closed to others (0700); the files in it are readable, because containers read them under users
of their own.
"""

import argparse
import json
import secrets
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
USERS: Final = ("gateway", "console", "admin", "worker-1", "worker-2")
"""NATS users of deploy/nats/users.conf."""
APPS: Final = HERE.parent / "tyk" / "apps"
PLAIN: Final = (
    "key_pepper",
    "plugin_secret",
    "redis",
    "postgres",
    "console_secret_key",
    "admin_password",
)


def password() -> str:
    """256 random bits. It begins with a letter: nats-server would read digits as a number."""
    return "s" + secrets.token_hex(32)


def make(folder: Path) -> list[str]:
    """Writes what is missing in ``folder``; names of the files written."""
    folder.mkdir(mode=0o700, exist_ok=True)
    written: list[str] = []

    def keep(name: str, text: str) -> str:
        path = folder / name
        if not path.exists():
            path.write_text(text)
            path.chmod(0o644)
            written.append(name)
        return path.read_text().strip()

    users = {user: keep(f"nats_{user}", password()) for user in USERS}
    plain = {name: keep(name, password()) for name in PLAIN}
    variables = {f"NATS_{user.upper().replace('-', '_')}_PASSWORD": p for user, p in users.items()}
    keep("nats.env", "".join(f"{name}={value}\n" for name, value in variables.items()))
    url = f"postgresql://signalbox:{plain['postgres']}@postgres:5432/signalbox"
    keep("database_url", url)
    tyk = {
        "TYK_GW_SECRET": password(),
        "TYK_GW_NODESECRET": password(),
        "TYK_GW_STORAGE_PASSWORD": plain["redis"],
    }
    keep("tyk.env", "".join(f"{name}={value}\n" for name, value in tyk.items()))
    return written + _definitions(folder / "tyk_apps", plain["plugin_secret"])


def _definitions(folder: Path, secret: str) -> list[str]:
    """Tyk's API definitions with the secret it shows the plugins, made anew each time: they may have changed."""
    folder.mkdir(exist_ok=True)
    for path in sorted(APPS.glob("*.json")):
        doc = json.loads(path.read_text())
        if doc.get("custom_middleware", {}).get("driver") == "grpc":
            doc["config_data"] = {**(doc.get("config_data") or {}), "secret": secret}
        copy = folder / path.name
        copy.write_text(json.dumps(doc, indent=2))
        copy.chmod(0o644)
    return [folder.name]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Random passwords for docker-compose.yml.")
    parser.add_argument("--folder", type=Path, default=HERE / "secrets", help="where to put them")
    folder = parser.parse_args().folder
    for name in make(folder):
        sys.stdout.write(f"made {folder / name}\n")


if __name__ == "__main__":
    main()
