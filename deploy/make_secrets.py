# ruff: noqa: INP001  a script for machines without Signalbox installed, no package
"""Secrets for docker-compose.yml, into ``deploy/secrets/``: ``python3 deploy/make_secrets.py``.

Random passwords, and for NATS an authority (CA) with a certificate for each node. Needs Python and the program
``openssl``. What exists is kept, so it may be run again (and must be, when ``tyk/apps`` changes: Tyk gets copies that
hold the secret it shares with the plugins); delete a file to have it made anew, or give ``--renew`` for the
certificates. The folder is closed to others (0700); the files in it are readable, because containers read them under
users of their own. Only the authority's key is closed by itself: no container reads it, and it may be kept elsewhere.
"""

import argparse
import json
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -I leaves it out

import certificates

HERE: Final = Path(__file__).resolve().parent
ROLES: Final = ("gateway", "console", "outbound", "host", "admin", "gateway-queues", "outbound-queues", "admin-queues")
WORKERS: Final = ("worker-1", "worker-2")
"""With the roles, the NATS users of deploy/nats/users.conf."""
NODES: Final[Mapping[str, Sequence[str]]] = {"nats-1": (), "nats-2": (), "nats-3": ()}
"""Each NATS node, with further names and addresses that it is reached by."""
APPS: Final = HERE.parent / "tyk" / "apps"
PASSWORDS: Final = ("redis", "postgres", "admin_password", "grafana_password")
PLAIN: Final = ("key_pepper", "plugin_secret", "console_secret_key", *PASSWORDS)
_USER: Final = re.compile(r"[A-Za-z0-9_-]+")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def password() -> str:
    """256 random bits. It begins with a letter: nats-server would read digits as a number."""
    return "s" + secrets.token_hex(32)


def make(
    folder: Path,
    *,
    workers: Sequence[str] = WORKERS,
    nodes: Mapping[str, Sequence[str]] = NODES,
    is_renewal: bool = False,
) -> list[str]:
    """Writes what is missing in ``folder``, and on a renewal every certificate; names of the files written."""
    folder.mkdir(mode=0o700, exist_ok=True)
    # For credentials of repositories, one <name>.json each: containers' users read it, and nobody else enters above.
    (folder / "repositories").mkdir(mode=0o755, exist_ok=True)
    written: list[str] = []

    def keep(name: str, text: str) -> str:
        path = folder / name
        if not path.exists():
            certificates.write(path, text)
            written.append(name)
        return path.read_text().strip()

    users = {user: keep(f"nats_{user}", password()) for user in (*ROLES, *workers)}
    plain = {name: keep(name, password()) for name in PLAIN}
    written += _passwords_of_nats(folder / "nats.env", users)
    url = f"postgresql://signalbox:{plain['postgres']}@postgres:5432/signalbox"
    keep("database_url", url)
    keep("traces_headers", "")  # yours to fill, where a collector of traces asks for a token
    tyk = {"TYK_GW_SECRET": password(), "TYK_GW_NODESECRET": password(), "TYK_GW_STORAGE_PASSWORD": plain["redis"]}
    keep("tyk.env", "".join(f"{name}={value}\n" for name, value in tyk.items()))
    written += _definitions(folder / "tyk_apps", plain["plugin_secret"])
    return written + certificates.make(folder, nodes, is_renewal=is_renewal)


def _passwords_of_nats(path: Path, users: Mapping[str, str]) -> list[str]:
    """Write nats-server's environment: a password for each user, those of earlier runs included."""
    before = path.read_text() if path.exists() else ""
    known = dict(line.split("=", 1) for line in before.splitlines())
    for user, text in users.items():
        known[f"NATS_{re.sub(r'[^A-Z0-9]', '_', user.upper())}_PASSWORD"] = text
    after = "".join(f"{name}={value}\n" for name, value in known.items())
    if after == before:
        return []
    certificates.write(path, after)
    return [path.name]


def _definitions(folder: Path, secret: str) -> list[str]:
    """Tyk's API definitions with the secret it shows the plugins, made anew each time: they may have changed."""
    folder.mkdir(exist_ok=True)
    for path in sorted(APPS.glob("*.json")):
        doc = json.loads(path.read_text())
        if doc.get("custom_middleware", {}).get("driver") == "grpc":
            doc["config_data"] = {**(doc.get("config_data") or {}), "secret": secret}
        certificates.write(folder / path.name, json.dumps(doc, indent=2))
    return [folder.name]


def _worker(text: str) -> str:
    if not _USER.fullmatch(text) or text in ROLES:
        raise argparse.ArgumentTypeError(f"{text!r} is no name for a worker: letters, digits, - and _")
    return text


def _node(text: str) -> tuple[str, list[str]]:
    name, _, further = text.partition("=")
    names = [one.strip() for one in further.split(",") if one.strip()]
    for one in (name, *names):
        if not _HOST.fullmatch(one) and not certificates.alternative(one).startswith("IP:"):
            raise argparse.ArgumentTypeError(f"{one!r} is neither a host's name nor an address")
    return name, names


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Passwords and certificates for docker-compose.yml.")
    parser.add_argument("--folder", type=Path, default=HERE / "secrets", help="where to put them")
    add = parser.add_argument
    add(
        "--worker",
        action="append",
        type=_worker,
        metavar="NAME",
        help=f"a worker that gets a password; repeatable (default: {', '.join(WORKERS)})",
    )
    add(
        "--node",
        action="append",
        type=_node,
        metavar="NAME[=OTHER,...]",
        help="a NATS node that gets a certificate, with further names and addresses it is reached by; repeatable "
        f"(default: {', '.join(NODES)})",
    )
    add("--renew", action="store_true", help="make every node's certificate anew, of the same authority")
    given = parser.parse_args()
    folder: Path = given.folder
    nodes = dict(given.node) if given.node else NODES
    for name in make(folder, workers=given.worker or WORKERS, nodes=nodes, is_renewal=given.renew):
        sys.stdout.write(f"made {folder / name}\n")
    for name in certificates.expiring(folder):
        sys.stdout.write(f"{folder / name} ends within {certificates.SOON_DAYS} days: docs/certificates.md\n")


if __name__ == "__main__":
    main()
