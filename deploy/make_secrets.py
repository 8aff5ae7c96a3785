# ruff: noqa: INP001  a script for machines without Signalbox installed, no package
"""Secrets for docker-compose.yml, into ``deploy/secrets/``: ``python3 deploy/make_secrets.py``.

Random passwords, and for NATS an authority (CA) with a certificate for each node. Needs Python and the program
``openssl``. What exists is kept, so it may be run again (and must be, when ``tyk/apps`` changes: Tyk gets copies that
hold the secret it shares with the plugins); delete a file to have it made anew, or give ``--renew`` for the
certificates. The folder is closed to others (0700); the files in it are readable, because containers read them under
users of their own. Only the authority's key is closed by itself: no container reads it, and it may be kept elsewhere.
"""

import argparse
import ipaddress
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROLES: Final = ("gateway", "console", "admin")
WORKERS: Final = ("worker-1", "worker-2")
"""With the roles, the NATS users of deploy/nats/users.conf."""
NODES: Final[Mapping[str, Sequence[str]]] = {"nats-1": (), "nats-2": (), "nats-3": ()}
"""Each NATS node, with further names and addresses that it is reached by."""
APPS: Final = HERE.parent / "tyk" / "apps"
PLAIN: Final = (
    "key_pepper",
    "plugin_secret",
    "redis",
    "postgres",
    "console_secret_key",
    "admin_password",
)
CA_DAYS: Final = 3650
DAYS: Final = 397
"""A year, and a month to renew in."""
SOON_DAYS: Final = 30
_USER: Final = re.compile(r"[A-Za-z0-9_-]+")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_EXTENSIONS: Final = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[node]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
subjectAltName = {names}
"""


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
    written: list[str] = []

    def keep(name: str, text: str) -> str:
        path = folder / name
        if not path.exists():
            _write(path, text)
            written.append(name)
        return path.read_text().strip()

    users = {user: keep(f"nats_{user}", password()) for user in (*ROLES, *workers)}
    plain = {name: keep(name, password()) for name in PLAIN}
    written += _passwords_of_nats(folder / "nats.env", users)
    url = f"postgresql://signalbox:{plain['postgres']}@postgres:5432/signalbox"
    keep("database_url", url)
    tyk = {
        "TYK_GW_SECRET": password(),
        "TYK_GW_NODESECRET": password(),
        "TYK_GW_STORAGE_PASSWORD": plain["redis"],
    }
    keep("tyk.env", "".join(f"{name}={value}\n" for name, value in tyk.items()))
    written += _definitions(folder / "tyk_apps", plain["plugin_secret"])
    return written + _certificates(folder, nodes, is_renewal=is_renewal)


def expiring(folder: Path) -> list[str]:
    """Names of the certificates in ``folder`` that end within :data:`SOON_DAYS`, the authority's included."""
    found = [folder / "ca" / "certificate.pem", *sorted(folder.glob("tls/*/node.pem"))]
    ask = ("x509", "-noout", "-checkend", str(SOON_DAYS * 86_400), "-in")
    return [
        str(path.relative_to(folder))
        for path in found
        if _run(*ask, str(path)).returncode != 0
    ]  # fmt: skip


def _passwords_of_nats(path: Path, users: Mapping[str, str]) -> list[str]:
    """nats-server's environment: a password for each user, those of earlier runs included."""
    before = path.read_text() if path.exists() else ""
    known = dict(line.split("=", 1) for line in before.splitlines())
    for user, text in users.items():
        known[f"NATS_{re.sub(r'[^A-Z0-9]', '_', user.upper())}_PASSWORD"] = text
    after = "".join(f"{name}={value}\n" for name, value in known.items())
    if after == before:
        return []
    _write(path, after)
    return [path.name]


def _definitions(folder: Path, secret: str) -> list[str]:
    """Tyk's API definitions with the secret it shows the plugins, made anew each time: they may have changed."""
    folder.mkdir(exist_ok=True)
    for path in sorted(APPS.glob("*.json")):
        doc = json.loads(path.read_text())
        if doc.get("custom_middleware", {}).get("driver") == "grpc":
            doc["config_data"] = {**(doc.get("config_data") or {}), "secret": secret}
        _write(folder / path.name, json.dumps(doc, indent=2))
    return [folder.name]


# ---------------------------------------------------------------------------------- certificates


def _certificates(
    folder: Path, nodes: Mapping[str, Sequence[str]], *, is_renewal: bool
) -> list[str]:
    """The authority, what programs trust (``tls_ca``), and for each node a certificate with its key in one file.

    One file, replaced at once: whoever reads it finds two that belong together.
    """
    written = _authority(folder / "ca")
    authority = (folder / "ca" / "certificate.pem").read_text()
    trusted = folder / "tls_ca"
    before = trusted.read_text() if trusted.exists() else ""
    if (
        authority not in before
    ):  # an earlier authority is trusted on, until somebody deletes the file
        _write(trusted, authority + before)
        written.append(trusted.name)
    (folder / "tls").mkdir(exist_ok=True)
    every: dict[str, Sequence[str]] = {path.name: () for path in (folder / "tls").iterdir()}
    every.update(nodes)
    for node, given in sorted(every.items()):
        home = folder / "tls" / node
        home.mkdir(exist_ok=True)
        _write(home / "ca.pem", trusted.read_text())
        names = home / "names"
        known = names.read_text().split() if names.exists() else []
        wanted = list(given) or known
        if is_renewal or wanted != known or not (home / "node.pem").exists():
            _write(home / "node.pem", _signed(folder / "ca", node, wanted))
            _write(names, "".join(f"{name}\n" for name in wanted))
            written.append(f"tls/{node}/node.pem")
    return written


def _authority(home: Path) -> list[str]:
    """Makes the authority unless there is one. Its key is needed only to sign."""
    home.mkdir(mode=0o700, exist_ok=True)
    certificate = home / "certificate.pem"
    if certificate.exists():
        return []
    _write(home / "key.pem", _key(), mode=0o600)
    with tempfile.TemporaryDirectory(dir=home) as work:
        conf = Path(work) / "openssl.cnf"
        conf.write_text(_EXTENSIONS.format(names="DNS:localhost"))
        text = _openssl(
            "req", "-x509", "-new", "-sha256", "-config", str(conf), "-extensions", "authority",
            "-key", str(home / "key.pem"), "-days", str(CA_DAYS), "-subj", "/O=Signalbox/CN=Signalbox NATS authority",
        )  # fmt: skip
    _write(certificate, text)
    return ["ca/key.pem", "ca/certificate.pem"]


def _signed(ca: Path, node: str, further: Sequence[str]) -> str:
    """A new key of a node and its certificate, for both ends of a connection, as one text."""
    if not (ca / "key.pem").exists():
        raise SystemExit(
            f"{ca / 'key.pem'} is not here: without the authority's key nothing can be signed."
        )
    names = ",".join(_alternative(name) for name in (node, "localhost", "127.0.0.1", *further))
    with tempfile.TemporaryDirectory(dir=ca) as work:
        conf, key = Path(work) / "openssl.cnf", Path(work) / "key.pem"
        conf.write_text(_EXTENSIONS.format(names=names))
        _write(key, _key(), mode=0o600)
        subject = ("-config", str(conf), "-subj", f"/O=Signalbox/CN={node}")
        request = _openssl("req", "-new", "-sha256", "-key", str(key), *subject)
        certificate = _openssl(
            "x509", "-req", "-sha256", "-days", str(DAYS), "-set_serial", f"0x{secrets.token_hex(15)}",
            "-CA", str(ca / "certificate.pem"), "-CAkey", str(ca / "key.pem"),
            "-extfile", str(conf), "-extensions", "node",
            text=request,
        )  # fmt: skip
        return certificate + key.read_text()


def _alternative(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _key() -> str:
    return _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


def _openssl(*arguments: str, text: str = "") -> str:
    told = _run(*arguments, text=text)
    if told.returncode != 0:
        raise SystemExit(f"openssl {arguments[0]} failed: {told.stderr.strip()}")
    return told.stdout


def _run(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ["openssl", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
        )  # fmt: skip
    except FileNotFoundError:
        raise SystemExit(
            "The program openssl makes the certificates, and is not installed."
        ) from None


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    """The whole file at once: who reads it meanwhile finds the old one or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    new.chmod(mode)
    new.replace(path)


# ---------------------------------------------------------------------------------- the command


def _worker(text: str) -> str:
    if not _USER.fullmatch(text) or text in ROLES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name for a worker: letters, digits, - and _"
        )
    return text


def _node(text: str) -> tuple[str, list[str]]:
    name, _, further = text.partition("=")
    names = [one.strip() for one in further.split(",") if one.strip()]
    for one in (name, *names):
        if not _HOST.fullmatch(one) and not _alternative(one).startswith("IP:"):
            raise argparse.ArgumentTypeError(f"{one!r} is neither a host's name nor an address")
    return name, names


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description="Passwords and certificates for docker-compose.yml."
    )
    parser.add_argument("--folder", type=Path, default=HERE / "secrets", help="where to put them")
    parser.add_argument(
        "--worker", action="append", type=_worker, metavar="NAME",
        help=f"a worker that gets a password; repeatable (default: {', '.join(WORKERS)})",
    )  # fmt: skip
    parser.add_argument(
        "--node", action="append", type=_node, metavar="NAME[=OTHER,...]",
        help="a NATS node that gets a certificate, with further names and addresses it is reached by; repeatable "
        f"(default: {', '.join(NODES)})",
    )  # fmt: skip
    parser.add_argument(
        "--renew", action="store_true", help="make every node's certificate anew, of the same authority"
    )  # fmt: skip
    given = parser.parse_args()
    folder: Path = given.folder
    nodes = dict(given.node) if given.node else NODES
    for name in make(folder, workers=given.worker or WORKERS, nodes=nodes, is_renewal=given.renew):
        sys.stdout.write(f"made {folder / name}\n")
    for name in expiring(folder):
        sys.stdout.write(
            f"{folder / name} ends within {SOON_DAYS} days: docs/deploy.md, Certificates\n"
        )


if __name__ == "__main__":
    main()
