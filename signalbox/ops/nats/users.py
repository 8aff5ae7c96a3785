"""``signalbox nats-users``: print the accounts block of a nats-server configuration."""

import argparse
import base64
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from signalbox.ops import natsserver
from signalbox.ops.nats.keys import Keys
from signalbox.program.errors import Misconfigured
from signalbox.wire.assets import GIB

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_REPLICAS: Final = re.compile(r"[1-9][0-9]{0,2}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which workers and accounts have users of their own."""
    parser.description = (
        "Print the accounts block of nats.conf: an account for queues and one for everything else, with one user per "
        "role that has the subjects it needs and no others. Passwords stay outside, in NATS_<USER>_PASSWORD of the "
        "server's environment."
    )
    parser.add_argument(
        "--worker",
        action="append",
        default=[],
        metavar="ID[=GPU,...]",
        help=(
            "A user for this worker alone (SIGNALBOX_NATS_USER is its SIGNALBOX_WORKER_ID), who may write its own "
            "tickets and presence and, with device ids, their leases only. Given once, there is no user that all "
            "workers share."
        ),
    )
    parser.add_argument(
        "--queues-gib",
        type=float,
        default=natsserver.QUEUES_BYTES / GIB,
        help="Disk that all queues may take together, each copy on each node counted, in GiB (default: 16). Not more "
        "than the servers' max_file_store.",
    )
    parser.add_argument(
        "--reader",
        action="append",
        default=[],
        metavar="ACCOUNT",
        help=(
            "A user reader-ACCOUNT for an account's own services, which may read the ends of the account's jobs in "
            "RESULTS and the outputs that these name, and nothing else (docs/results.md)."
        ),
    )
    add = parser.add_argument_group("hosts, each with a key instead of a password").add_argument
    add(
        "--keys",
        type=Path,
        metavar="FOLDER",
        help=(
            "A user for each key in this folder, of a host that has it or will have it (signalbox host add): it may "
            "write the host's presence, and the tickets and presence of its workers. Servers that are reloaded "
            "(SIGHUP) let new keys in, cut off revoked ones and keep all other connections."
        ),
    )
    add("--pool", type=int, default=0, metavar="N", help="Make keys until N of the folder are free.")
    add("--revoke", action="append", default=[], metavar="KEY", help="Forget this key of the folder.")
    add(
        "--secret",
        metavar="NAME",
        help="Print a Secret of Kubernetes with the seeds of pods, as files POD.seed, instead of the accounts block.",
    )
    add(
        "--pod",
        action="append",
        default=[],
        metavar="POD[:REPLICAS]",
        help="A pod of that Secret, or a StatefulSet's from POD-0 on: each has its key of the folder, or gets a free "
        "one. Name all each time; which keys a folder has given stays in it.",
    )
    add(
        "--namespace",
        metavar="NAMESPACE",
        help="The namespace of that Secret and its pods: those of the same names in another one have keys of their "
        "own. Give it each time or never, since without it the same pods have other keys.",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="Write this file, whole or not at all, instead of printing."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print or write it; the exit status."""
    workers: dict[str, list[str]] = {}
    for text in arguments.worker:
        name, _, gpus = text.partition("=")
        workers[name] = [gpu for gpu in gpus.split(",") if gpu]
    if arguments.secret or arguments.pod or arguments.namespace is not None:
        if arguments.keys is None or not arguments.secret or not arguments.pod:
            raise Misconfigured("A Secret of pods needs --keys FOLDER, --secret NAME and --pod POD.")
        if workers or arguments.reader or arguments.pool or arguments.revoke or arguments.output:
            raise Misconfigured(
                "--secret prints a Secret alone: give --worker, --reader, --pool, --revoke and --output to another "
                "command."
            )
        print(_secret(Keys(arguments.keys), arguments.secret, arguments.namespace, _pods(arguments.pod)))
        return 0
    readers = list(dict.fromkeys(arguments.reader))
    text = natsserver.users(workers, readers, queues_bytes=int(arguments.queues_gib * GIB), hosts=_hosts(arguments))
    if arguments.output is None:
        print(text)
    else:
        partial = arguments.output.with_name(f".{arguments.output.name}.{os.getpid()}")
        partial.write_text(f"{text}\n", encoding="utf-8")
        partial.replace(arguments.output)
    return 0


def _secret(keys: Keys, name: str, namespace: str | None, pods: Sequence[str]) -> str:
    """The manifest, as JSON, which kubectl takes as well; says on stderr which pod has which key."""
    if not _NAME.fullmatch(name):
        raise Misconfigured(f"--secret {name}: no name of a Secret, like worker-seeds.")
    if namespace is not None and not _NAMESPACE.fullmatch(namespace):
        raise Misconfigured(f"--namespace {namespace}: no name of a namespace, like signalbox.")
    metadata, owner = {"name": name}, name
    if namespace is not None:
        metadata["namespace"], owner = namespace, f"{namespace}/{name}"
    hosts = {pod: f"pod:{owner}/{pod}" for pod in pods}
    keys.require_free(hosts.values())
    data = {}
    for pod, host in hosts.items():
        key, seed = keys.of(host)
        data[f"{pod}.seed"] = base64.b64encode(seed.encode()).decode()
        print(f"{pod}: {key.name}", file=sys.stderr)
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
    return json.dumps(manifest, indent=2)


def _pods(given: Sequence[str]) -> list[str]:
    """Names of pods. Raises :class:`Misconfigured` for a text that is none."""
    found = []
    for text in given:
        name, colon, replicas = text.partition(":")
        if not _NAME.fullmatch(name) or (colon and not _REPLICAS.fullmatch(replicas)):
            raise Misconfigured(f"--pod {text}: neither a pod nor a StatefulSet with its replicas, like worker-cpu:3.")
        found += [f"{name}-{number}" for number in range(int(replicas))] if colon else [name]
    return list(dict.fromkeys(found))


def _hosts(arguments: argparse.Namespace) -> dict[str, str]:
    """User -> public key, after those that are asked for are made and revoked; says what it did on stderr."""
    if arguments.keys is None:
        if arguments.pool or arguments.revoke:
            raise Misconfigured("--pool and --revoke need --keys FOLDER, where keys of hosts are kept.")
        return {}
    keys = Keys(arguments.keys)
    keys.revoke(arguments.revoke)
    made = keys.top_up(arguments.pool)
    every = keys.all()
    free = sum(key.is_free for key in every)
    print(
        f"{arguments.keys}: {len(made)} made, {len(arguments.revoke)} revoked, {free} free of {len(every)}. Put this "
        "into every server's configuration, and reload it (SIGHUP).",
        file=sys.stderr,
    )
    return {key.name: key.public for key in every}
