# ruff: noqa: INP001  beside a script for machines without Signalbox installed, no package
"""An authority (CA) for NATS and a certificate for each node, made with ``openssl`` for make_secrets.py."""

import ipaddress
import os
import secrets
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

CA_DAYS: Final = 3650
DAYS: Final = 397
"""A year, and a month to renew in."""
SOON_DAYS: Final = 30
_CA: Final = "Signalbox NATS authority"
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


def make(folder: Path, nodes: Mapping[str, Sequence[str]], *, is_renewal: bool) -> list[str]:
    """The authority, what programs trust (``tls_ca``), and for each node a certificate with its key in one file.

    One file, replaced at once: a server that reads it finds two that belong together. nodes: with further names
    and addresses of each. is_renewal: every certificate is made anew. Returns the names of the files written.
    """
    written = [*_authority(folder / "ca"), *_trust(folder)]
    trusted = folder / "tls_ca"
    (folder / "tls").mkdir(exist_ok=True)
    every: dict[str, Sequence[str]] = {path.name: () for path in (folder / "tls").iterdir()}
    every.update(nodes)
    for node, given in sorted(every.items()):
        home = folder / "tls" / node
        home.mkdir(exist_ok=True)
        write(home / "ca.pem", trusted.read_text())
        names = home / "names"
        known = names.read_text().split() if names.exists() else []
        wanted = list(given) or known
        if is_renewal or wanted != known or not (home / "node.pem").exists():
            write(home / "node.pem", _signed(folder / "ca", node, wanted))
            write(names, "".join(f"{name}\n" for name in wanted))
            written.append(f"tls/{node}/node.pem")
    return written


def _trust(folder: Path) -> list[str]:
    """Write the authorities that programs trust. An earlier one stays trusted until the file is deleted."""
    authority = (folder / "ca" / "certificate.pem").read_text()
    trusted = folder / "tls_ca"
    before = trusted.read_text() if trusted.exists() else ""
    if authority in before:
        return []
    write(trusted, authority + before)
    return [trusted.name]


def _authority(home: Path) -> list[str]:
    """Makes the authority unless there is one. Its key is needed only to sign."""
    home.mkdir(mode=0o700, exist_ok=True)
    certificate = home / "certificate.pem"
    if certificate.exists():
        return []
    write(home / "key.pem", _key(), mode=0o600)
    with tempfile.TemporaryDirectory(dir=home) as work:
        conf = Path(work) / "openssl.cnf"
        conf.write_text(_EXTENSIONS.format(names="DNS:localhost"))
        what = ("-config", str(conf), "-extensions", "authority", "-subj", f"/O=Signalbox/CN={_CA}")
        by = ("-key", str(home / "key.pem"), "-days", str(CA_DAYS))
        text = _openssl("req", "-x509", "-new", "-sha256", *what, *by)
    write(certificate, text)
    return ["ca/key.pem", "ca/certificate.pem"]


def _signed(ca: Path, node: str, further: Sequence[str]) -> str:
    """A new key of a node and its certificate, for both ends of a connection, as one text."""
    if not (ca / "key.pem").exists():
        raise SystemExit(f"{ca / 'key.pem'} is not here: without the authority's key nothing can be signed.")
    names = ",".join(alternative(name) for name in (node, "localhost", "127.0.0.1", *further))
    with tempfile.TemporaryDirectory(dir=ca) as work:
        conf, key = Path(work) / "openssl.cnf", Path(work) / "key.pem"
        conf.write_text(_EXTENSIONS.format(names=names))
        write(key, _key(), mode=0o600)
        subject = ("-config", str(conf), "-subj", f"/O=Signalbox/CN={node}")
        request = _openssl("req", "-new", "-sha256", "-key", str(key), *subject)
        what = ("-days", str(DAYS), "-set_serial", f"0x{secrets.token_hex(15)}")
        by = ("-CA", str(ca / "certificate.pem"), "-CAkey", str(ca / "key.pem"))
        use = ("-extfile", str(conf), "-extensions", "node")
        certificate = _openssl("x509", "-req", "-sha256", *what, *by, *use, text=request)
        return certificate + key.read_text()


def alternative(name: str) -> str:
    """A host's name or address, as a certificate's subjectAltName has it."""
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def _key() -> str:
    return _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


def _openssl(*arguments: str, text: str = "") -> str:
    reported = _run(*arguments, text=text)
    if reported.returncode != 0:
        raise SystemExit(f"openssl {arguments[0]} failed: {reported.stderr.strip()}")
    return reported.stdout


def _run(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ["openssl", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        raise SystemExit("The program openssl makes the certificates, and is not installed.") from None


def expiring(folder: Path) -> list[str]:
    """Names of the certificates in ``folder`` that end within :data:`SOON_DAYS`, the authority's included."""
    found = [folder / "ca" / "certificate.pem", *sorted(folder.glob("tls/*/node.pem"))]
    ask = ("x509", "-noout", "-checkend", str(SOON_DAYS * 86_400), "-in")
    ended = (path for path in found if _run(*ask, str(path)).returncode != 0)
    return [str(path.relative_to(folder)) for path in ended]


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace the whole file at once: a reader finds the old one or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    new.chmod(mode)
    new.replace(path)
