"""``signalbox host add USER@MACHINE``: set a machine up as a host, over this system's own ssh.

One connection carries the release, its settings and a key of the pool, as an archive on its standard input: no secret
stands in a command line. The far end needs a shell, tar, Python and, to start, systemd.
"""

import argparse
import contextlib
import hashlib
import io
import ipaddress
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

from signalbox.ops.nats.keys import Key, Keys
from signalbox.program.errors import Misconfigured, Unavailable
from signalbox.wire.names import HOST_WORKERS

FOLDER: Final = "/opt/signalbox"
"""What the unit's file says; ``--folder`` takes its place there."""
UNIT: Final = "signalbox-host.service"
_UNITS: Final = "/etc/systemd/system"
_USER: Final = "signalbox"
_FAILED: Final = 255
"""Status of ssh itself; any other is the far end's."""
_RECEIVE: Final = (
    'd=$(mktemp -d) && trap \'rm -rf "$d"\' EXIT && tar -xf - -C "$d" && '
    '{ if [ "$(id -u)" = 0 ]; then sh "$d/setup.sh"; else sudo -n sh "$d/setup.sh"; fi; }'
)
_NAME: Final = re.compile(r"SIGNALBOX_[A-Z0-9_]+")
_MOST_PORT: Final = 65_535 - HOST_WORKERS
"""Of an agent's metrics: its workers have the ports after it."""
_KEPT: Final = re.compile(r"^key=kept (\S+)$", re.MULTILINE)
_INSTALLED: Final = "key=installed"
_EXAMPLES: Final = """\
  signalbox host add root@gpu-1 --wheel dist/signalbox-0.1.0-py3-none-any.whl --requirements requirements/worker.txt \\
      --keys deploy/secrets/hosts --nats-url tls://nats-1:4222,tls://nats-2:4222 --ca deploy/secrets/tls_ca
"""


class Answer(NamedTuple):
    """What came of a connection. is_sent: all was written; the far end may then have done all of it."""

    status: int
    text: str
    is_sent: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Set a machine up as a host, over ssh: a Python environment with this release, settings, a key of the pool "
        "and a systemd unit that starts `signalbox host`. Run again, it installs another release, whose workers "
        "take the place of the others one by one; the host keeps its key."
    )
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("target", metavar="USER@MACHINE", help="as ssh takes it; root, or a user whom sudo asks for no password")
    add("--wheel", type=Path, required=True, metavar="FILE", help="the release: a wheel of signalbox")
    add("--keys", type=Path, required=True, metavar="FOLDER", help="pool of keys (signalbox nats-users --pool)")
    add("--nats-url", required=True, metavar="URLS", help="SIGNALBOX_NATS_URL of the host")
    add("--ca", type=Path, metavar="FILE", help="certificates of the authorities that NATS' nodes show one of")
    add(
        "--metrics",
        metavar="ADDRESS:PORT",
        help="serve metrics of the agent there, and of its workers on the ports after it; without a password (nowhere)",
    )
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="another setting of the host; several")
    add("--requirements", type=Path, metavar="FILE", help="versions with hashes (requirements/worker.txt)")
    add("--extra", choices=("worker", "gpu"), default="worker", help="what pip takes along without --requirements")
    add("--python", default="python3", help="interpreter of the machine, 3.11 or newer (python3)")
    add("--inherit", action="store_true", help="take packages, as its TensorFlow, from that interpreter; ask no index")
    add("--folder", default=FOLDER, help=f"where everything goes ({FOLDER})")
    add("--user", default=_USER, help=f"system user that it runs as, made if need be ({_USER})")
    add("--units", default=_UNITS, metavar="FOLDER", help=f"where units go ({_UNITS})")
    add("--new-key", action="store_true", help="give the host another key; revoke the one it has had")
    add("--no-start", action="store_true", help="all but the start")
    add("--ssh", default="ssh", metavar="COMMAND", help="ssh with options of yours, as in --ssh 'ssh -p 2222'")


def run(arguments: argparse.Namespace) -> int:
    """Set it up; the exit status. Raises :class:`Misconfigured`, :class:`NotFound` without a free key."""
    parts = _parts(arguments)
    keys = Keys(arguments.keys)
    key = None
    if arguments.new_key or not any(each.host == arguments.target for each in keys.all()):
        key, seed = keys.take()
        parts |= {
            "key.env": f"SIGNALBOX_NATS_USER={key.name}\n".encode(),
            "nats_seed": f"{seed}\n".encode(),
        }
    try:
        answer = _send([*shlex.split(arguments.ssh), "-T", arguments.target, _RECEIVE], _archive(parts))
    except OSError as error:
        if key is not None:
            keys.put_back(key.name)
        raise Misconfigured(f"{arguments.ssh}: {error.strerror}.") from error
    name = _settle(keys, key, answer, arguments.target)
    if answer.status:
        raise Unavailable(f"{arguments.target} is not set up as a host; what it says stands above.")
    sys.stdout.write(f"{arguments.target} is a host, with the key {name}.\n")
    for old in (each for each in keys.all() if each.host == arguments.target and each.name != name):
        sys.stdout.write(f"It has had {old.name}: signalbox nats-users --revoke {old.name}, then reload NATS.\n")
    return 0


def _settle(keys: Keys, key: Key | None, answer: Answer, target: str) -> str:
    """Book which key the host has now: the one that was taken for it, or the one from before; its name.

    Raises :class:`Unavailable` where nobody knows, and :class:`Misconfigured` where the pool does not know the key.
    """
    kept = _KEPT.search(answer.text)
    if key is not None:
        if _INSTALLED in answer.text.splitlines():
            keys.keep(key.name, target)
            return key.name
        if kept is None and answer.status == _FAILED and answer.is_sent:
            raise Unavailable(
                f"The connection to {target} ended before it said whether it has the key {key.name}, which is given to "
                "no other host. Run the command again: it says which key the host has. If that is another, revoke "
                "this one."
            )
        keys.put_back(key.name)
    if kept is None:
        return ""
    if kept[1] not in {each.name for each in keys.all()}:
        raise Misconfigured(
            f"{target} has the key {kept[1]}, which is revoked, or of another pool. With --new-key it gets one of this."
        )
    keys.keep(kept[1], target)
    return kept[1]


def _send(command: Sequence[str], archive: bytes) -> Answer:
    """Run ssh with the archive on its standard input; what it says to a person goes to our stderr as it comes."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        is_sent = True
        try:
            process.stdin.write(archive)
            process.stdin.close()
        except BrokenPipeError:
            is_sent = False
        text = process.stdout.read().decode(errors="replace")
    return Answer(process.returncode, text, is_sent)


def _parts(arguments: argparse.Namespace) -> dict[str, bytes]:
    """The files that the far end gets, but for the key. Raises :class:`Misconfigured`."""
    if arguments.target.startswith("-"):
        raise Misconfigured(f"{arguments.target} is no machine.")
    if not re.fullmatch(r"(/[A-Za-z0-9._-]+)+", arguments.folder):
        raise Misconfigured("--folder wants a path of letters, digits, dots, - and _, from / on.")
    wheel = _bytes(arguments.wheel)
    release = f"{arguments.wheel.name.split('-')[1] if '-' in arguments.wheel.name else 'release'}"
    parts = {
        "setup.sh": _ours("setup.sh").encode(),
        UNIT: unit(arguments.folder, arguments.user).encode(),
        arguments.wheel.name: wheel,
        "host.env": _environment(arguments).encode(),
    }
    if arguments.ca is not None:
        parts["nats_ca.pem"] = _bytes(arguments.ca)
    made_of = hashlib.sha256(wheel + arguments.python.encode() + arguments.extra.encode())
    if arguments.requirements is not None:
        parts["requirements.txt"] = _bytes(arguments.requirements)
        made_of.update(parts["requirements.txt"])
    plan = {
        "folder": arguments.folder,
        "user": arguments.user,
        "units": arguments.units,
        "python": arguments.python,
        "wheel": arguments.wheel.name,
        "extra": arguments.extra,
        "release": f"{release}-{made_of.hexdigest()[:8]}",
        "inherits": _word(arguments.inherit),
        "replaces": _word(arguments.new_key),
        "starts": _word(not arguments.no_start),
    }
    parts["plan.sh"] = "".join(f"{name}={shlex.quote(text)}\n" for name, text in plan.items()).encode()
    return parts


def unit(folder: str = FOLDER, user: str = _USER) -> str:
    """The unit's file, for a host whose everything is in ``folder``."""
    return _ours(UNIT).replace(FOLDER, folder).replace(f"User={_USER}\n", f"User={user}\n")


def _environment(arguments: argparse.Namespace) -> str:
    """The host's settings, one a line as systemd reads them. Raises :class:`Misconfigured`."""
    folder = arguments.folder
    settings = {
        "SIGNALBOX_NATS_URL": arguments.nats_url,
        "SIGNALBOX_NATS_SEED_FILE": f"{folder}/etc/nats_seed",
        "SIGNALBOX_HOST_DATA_DIR": f"{folder}/data",
        # Where the link leads to now: a worker that imports late must not get a module of the next release.
        "SIGNALBOX_HOST_WORKER": f"sh -c 'exec $(readlink -f {folder}/current)/bin/python -m workers \"$@\"' sh",
        "SIGNALBOX_WORKER_LOCK_DIR": f"{folder}/data/locks",
        "SIGNALBOX_WORKER_CACHE_DIR": f"{folder}/cache",
    }
    if arguments.ca is not None:
        settings["SIGNALBOX_NATS_CA_FILE"] = f"{folder}/etc/nats_ca.pem"
    if arguments.metrics is not None:
        host, port = _metrics(arguments.metrics)
        settings |= {"SIGNALBOX_METRICS_HOST": host, "SIGNALBOX_METRICS_PORT": str(port)}
    for text in arguments.set:
        name, equals, value = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise Misconfigured(f"--set wants SIGNALBOX_...=VALUE, not {text!r}.")
        settings[name] = value
    return "".join(f"{name}={_quoted(text)}\n" for name, text in settings.items())


def _metrics(text: str) -> tuple[str, int]:
    """Address and port to serve metrics on, with room for the workers'. Raises :class:`Misconfigured`."""
    host, _, port = text.rpartition(":")
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        if port.isdecimal() and 0 < int(port) <= _MOST_PORT:
            return str(address), int(port)
    raise Misconfigured(
        f"--metrics wants an address of the machine and a port up to {_MOST_PORT}, as 10.0.0.21:9100: not {text!r}."
    )


def _quoted(text: str) -> str:
    """A value of an EnvironmentFile (systemd.exec(5)), which is read there as a shell reads double quotes."""
    if any(not character.isprintable() for character in text):
        raise Misconfigured("A setting of a host is one line of text.")
    return '"' + re.sub(r'(["\\$`])', r"\\\1", text) + '"'


def _ours(name: str) -> str:
    return resources.files("signalbox.ops.host").joinpath("systemd", name).read_text("utf-8")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read: {error.strerror}.") from error


def _archive(parts: Mapping[str, bytes]) -> bytes:
    """A tar of files that only their owner reads."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in parts.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _word(is_so: bool) -> str:
    return "yes" if is_so else "no"
