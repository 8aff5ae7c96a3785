"""The command ``signalbox doctor``: collects the findings of every place it was given, and prints them."""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from signalbox.bus import queues
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.ops.doctor import certificates, environment, host, natsconf, natsrules, nodes, queuerules, tyk, uploads
from signalbox.ops.doctor.catalog import CATALOG, Finding, Severity, accept
from signalbox.ops.doctor.environment import Environment
from signalbox.program import log
from signalbox.program.errors import Misconfigured, SignalboxError
from signalbox.program.settings import Wire, named
from signalbox.wire.names import Bucket
from signalbox.wire.workerdocs import Worker

_EXIT_WEAK: Final = 1
_TIMEOUT_S: Final = 40.0
_CONNECT_S: Final = 5.0
_MAX_VARZ_BYTES: Final = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``signalbox doctor``."""
    parser.description = (
        "Examine a deployment: the SIGNALBOX_* variables of this process, the NATS server they lead to, files of NATS "
        "and Tyk, secrets, this machine. Every weak setting is named with why it matters and how to mend it."
    )
    parser.epilog = "Example: docker compose run --rm console python -m signalbox doctor --production"
    parser.add_argument(
        "--production",
        action="store_true",
        help="Exit with status 1 if anything of medium or high severity is neither mended nor accepted.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON, for programs.")
    parser.add_argument(
        "--offline", action="store_true", help="Do not connect to NATS; look at files and settings only."
    )
    parser.add_argument(
        "--program",
        choices=environment.PROGRAMS,
        default="",
        help="Whose settings these are; guessed from the variables otherwise.",
    )
    parser.add_argument(
        "--files",
        type=Path,
        metavar="DIR",
        help="A deployment's folder as in the repository: tyk/, deploy/nats/nats.conf, deploy/secrets/.",
    )
    parser.add_argument("--monitor", metavar="URL", help="A nats-server's monitor, http://127.0.0.1:8222.")
    parser.add_argument(
        "--accept",
        type=Path,
        metavar="FILE",
        help='TOML with reasons, `[accept]` and `"nats.plain" = "why"`; default: deploy/doctor.toml in --files.',
    )
    parser.add_argument("--list", action="store_true", help="Print everything it can find, and stop.")


def run(arguments: argparse.Namespace) -> int:
    """Run ``signalbox doctor``; returns its exit status. Raises :class:`Misconfigured` for a bad file of reasons."""
    log.configure("ERROR", program="doctor")
    if arguments.list:
        sys.stdout.write(catalog_page() + "\n")
        return 0
    env = Environment(os.environ, arguments.program)
    found = [*environment.examine(env), *host.examine_process(), *host.examine_gpus()]
    if arguments.files is not None:
        found += examine_files(arguments.files)
    if arguments.monitor:
        found += asyncio.run(_monitor(arguments.monitor))
    if not arguments.offline:
        found += asyncio.run(_server(env))
        found += asyncio.run(uploads.examine(env))
    found = accept(found, _reasons(arguments))
    sys.stdout.write((as_json(found) if arguments.json else as_text(found)) + "\n")
    return _EXIT_WEAK if arguments.production and any(one.is_weak for one in found) else 0


def examine_files(folder: Path) -> Iterator[Finding]:
    """Findings in the files of a deployment that are in ``folder``."""
    conf = folder / "deploy" / "nats" / "nats.conf"
    if conf.exists():
        yield from _examined(conf, lambda path: natsrules.examine_conf(natsconf.read(path), str(path)))
    secrets = folder / "deploy" / "secrets"
    if secrets.is_dir():
        yield from host.examine_secrets(secrets)
        for pem in (secrets / "tls_ca", *sorted(secrets.glob("tls/*/node.pem"))):
            if pem.exists():
                yield from certificates.examine_file(pem)
    yield from _tyk(folder / "tyk", secrets)


def _tyk(files: Path, secrets: Path) -> Iterator[Finding]:
    made = secrets / "tyk_apps"  # what compose mounts: the definitions with their secret
    apps = made if made.is_dir() else files / "apps"
    public_ports: set[int] = set()
    env = {**os.environ, **_variables(secrets / "tyk.env")}

    def api(path: Path) -> Iterator[Finding]:
        doc = json.loads(path.read_bytes())
        public_ports.add(doc.get("listen_port", 0))
        return tyk.examine_api(doc, str(path))

    def gateway(path: Path) -> Iterator[Finding]:
        return tyk.examine_conf(json.loads(path.read_bytes()), str(path), env, public_ports)

    for path in sorted(apps.glob("*.json")):
        yield from _examined(path, api)
    if (files / "tyk.conf").exists():
        yield from _examined(files / "tyk.conf", gateway)


def _examined(path: Path, rules: Callable[[Path], Iterator[Finding]]) -> Iterator[Finding]:
    """What ``rules`` find in a file, or that it cannot be read."""
    try:
        yield from rules(path)
    except (OSError, ValueError, Misconfigured) as error:
        yield Finding("file.unreadable", str(path), str(error))


def _variables(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


async def _server(env: Environment) -> list[Finding]:
    wire = Wire(
        nats_url=env.get("SIGNALBOX_NATS_URL"),
        nats_user=env.get("SIGNALBOX_NATS_USER"),
        nats_password=env.secret("SIGNALBOX_NATS_PASSWORD"),
        nats_seed=env.secret("SIGNALBOX_NATS_SEED"),
        queues_nats_user=env.get("SIGNALBOX_QUEUES_NATS_USER"),
        queues_nats_password=env.secret("SIGNALBOX_QUEUES_NATS_PASSWORD"),
        nats_ca_file=env.get("SIGNALBOX_NATS_CA_FILE"),
        connect_timeout_s=_CONNECT_S,
        request_timeout_s=_CONNECT_S,
    )
    role = env.program or "admin"
    shown = await nodes.examine(wire.nats_url, wire.nats_ca_file)
    try:
        wire = named(wire)
        async with asyncio.timeout(_TIMEOUT_S):
            async with await Bus.connect(wire, role=role, name="doctor") as bus:
                found = list(await natsrules.examine_server(bus, role=env.program))
                workers = Table(bus, Bucket.WORKERS, Worker)
                await workers.start()
                found += natsrules.examine_workers(workers.items().values())
                await workers.close()
                if not wire.nats_user or wire.queues_nats_user:
                    async with await queues.connect(wire, role=role) as queue_bus:
                        found += await queuerules.examine(bus, queue_bus, role=env.program)
    except SignalboxError as error:
        return [*shown, Finding("nats.away", env.get("SIGNALBOX_NATS_URL"), error.public_message)]
    except TimeoutError:
        return [*shown, Finding("nats.away", env.get("SIGNALBOX_NATS_URL"), "no answer in time")]
    return [*shown, *found]


async def _monitor(url: str) -> list[Finding]:
    try:
        return list(natsrules.examine_varz(json.loads(await asyncio.to_thread(_varz, url)), url))
    except (OSError, HTTPException, ValueError, AttributeError) as error:
        return [Finding("nats.away", url, str(error))]


def _varz(url: str) -> bytes:
    """With the standard library, as the whole doctor: its contract has no HTTP client."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    with contextlib.closing(kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)) as connection:
        connection.request("GET", f"{parts.path.rstrip('/')}/varz")
        return connection.getresponse().read(_MAX_VARZ_BYTES)


def _reasons(arguments: argparse.Namespace) -> Mapping[str, str]:
    path = arguments.accept
    if path is None and arguments.files is not None:
        beside = arguments.files / "deploy" / "doctor.toml"
        path = beside if beside.exists() else None
    if path is None:
        return {}
    try:
        reasons = dict(tomllib.loads(path.read_text("utf-8")).get("accept", {}))
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{path} cannot be read: {error}.") from error
    for name, reason in reasons.items():
        if name not in CATALOG:
            raise Misconfigured(f"{path}: there is no finding {name!r}; signalbox doctor --list names them.")
        if not isinstance(reason, str) or not reason.strip():
            raise Misconfigured(f"{path}: {name} needs a reason in words.")
    return reasons


def as_text(found: list[Finding]) -> str:
    """Findings as text for a terminal: the most severe first, the accepted last."""
    order = {Severity.HIGH: 0, Severity.MEDIUM: 1, Severity.LOW: 2}
    lines = []
    for one in sorted(found, key=lambda f: (bool(f.accepted), order[f.check.severity], f.id)):
        mark = "accepted" if one.accepted else one.check.severity.value
        lines.append(f"{mark:8}  {one.id}  {one.where}: {one.what}")
        if one.accepted:
            lines.append(f"          because: {one.accepted}")
        else:
            lines += [f"          why:  {one.check.why}", f"          mend: {one.check.mend}"]
    weak = sum(one.is_weak for one in found)
    lines.append(f"{len(found)} found, {weak} of them to be mended or accepted" if found else "nothing weak found")
    return "\n".join(lines)


def as_json(found: list[Finding]) -> str:
    """Findings as JSON: one object per finding."""
    rows = [
        {
            "id": one.id,
            "severity": one.check.severity.value,
            "where": one.where,
            "what": one.what,
            "why": one.check.why,
            "mend": one.check.mend,
            "accepted": one.accepted,
        }
        for one in found
    ]
    return json.dumps({"findings": rows, "weak": sum(one.is_weak for one in found)}, indent=2)


def catalog_page() -> str:
    """Every finding as a Markdown table; docs/doctor.md is made of it."""
    rows = "\n".join(
        f"| `{name}` | {check.severity.value} | {check.why} | {check.mend} |" for name, check in CATALOG.items()
    )
    return f"| finding | severity | why it matters | how to mend it |\n|---|---|---|---|\n{rows}"
