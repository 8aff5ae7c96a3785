"""Maps each image of the compose file to this machine: program, files, folder and user."""

import pwd
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program.errors import Misconfigured
from verification.production import dockerfile
from verification.production.compose import Service
from verification.production.machine import Machine

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS: Final = "/opt/bin"
"""Folder in a container for programs that this machine has in other places."""
TYK_HOME: Final = "/opt/tyk-gateway"
TYK_UID: Final = 65532
ROOTS_CAPABILITIES: Final = (
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "net_bind_service",
    "net_raw",
    "sys_chroot",
    "mknod",
    "audit_write",
    "setfcap",
)
"""Capabilities that a container engine leaves to root."""
_INITDB: Final = """set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb -U "$POSTGRES_USER" --encoding=UTF8 --locale=C --auth-local=trust --auth-host=scram-sha-256 \
    --pwfile="$POSTGRES_PASSWORD_FILE"
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE \\"$POSTGRES_DB\\"" | postgres --single postgres
fi
if [ "$1" = postgres ]; then shift; fi
exec postgres -c listen_addresses='*' "$@"
"""
"""What the image's own entrypoint does with an empty volume. POSTGRES_DB has to differ from ``postgres``."""


class Mount(msgspec.Struct, frozen=True, array_like=True):
    """A folder or file of this machine in the container."""

    source: str
    target: str
    is_read_only: bool = True


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image, as far as this machine has it. path: where its programs are, in order. folders: its user's own."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = {}
    path: str = SYSTEM_PATH
    workdir: str = "/"
    user: str = "root"
    uid: int = 0
    gid: int = 0
    mounts: tuple[Mount, ...] = ()
    folders: tuple[str, ...] = ()
    stop_signal: signal.Signals = signal.SIGTERM


def find(name: str, service: Service, machine: Machine, repository: Path) -> Image:
    """The image of a service, its command put in. Raises :class:`Misconfigured` for one that is not known here."""
    kind = service.image.partition(":")[0]
    if service.user and service.user != kind:
        raise Misconfigured(f"{name}: user: {service.user} is not known here.")
    if service.build is not None:
        return _ours(service, machine, repository)
    if kind not in _KNOWN:
        raise Misconfigured(f"{name}: nothing here stands for the image {service.image}.")
    return _KNOWN[kind](service, machine)


def enter(image: Image, setpriv: str, *, has_no_new_privileges: bool) -> list[str]:
    """Command that enters the container's user, with no more capabilities than an engine leaves it."""
    kept = [f"+{name}" for name in ROOTS_CAPABILITIES] if not image.uid else []
    return [
        setpriv,
        f"--reuid={image.uid}",
        f"--regid={image.gid}",
        "--clear-groups",
        f"--bounding-set={','.join(['-all', *kept])}",
        "--inh-caps=-all",
        *(["--no-new-privs"] if has_no_new_privileges else []),
        "--pdeathsig=KILL",
        "--",
    ]


def _ours(service: Service, machine: Machine, repository: Path) -> Image:
    """An image of the Dockerfile: what it copies is there and nothing else of the repository, and the environment."""
    assert service.build is not None
    context = repository / service.build.context
    made = dockerfile.read(context / service.build.dockerfile, service.build.target)
    copied = tuple(Mount(str((context / a).resolve()), b) for a, b in made.copied)
    python = machine.python
    base = Path((python / "bin" / "python").resolve().parents[1])
    homes = {str(folder) for folder in (python, base) if not folder.is_relative_to("/usr")}
    return Image(
        argv=service.command or made.command,
        environment={"LANG": "C.UTF-8", **made.environment},
        path=f"{python / 'bin'}:{SYSTEM_PATH}",
        workdir=made.workdir,
        user=made.user,
        uid=made.uid,
        gid=made.uid,
        mounts=(*(Mount(home, home) for home in sorted(homes)), *copied),
    )


def _file(program: Path, target: str) -> Mount:
    return Mount(str(program.resolve()), target)


def _tyk(service: Service, machine: Machine) -> Image:
    program = f"{TYK_HOME}/tyk"
    return Image(
        argv=(program, *(service.command or (f"--conf={TYK_HOME}/tyk.conf",))),
        workdir=TYK_HOME,
        user="tyk",
        uid=TYK_UID,
        gid=TYK_UID,
        mounts=(_file(machine.tyk, program),),
    )


def _redis(service: Service, machine: Machine) -> Image:
    image = Image(argv=service.command or ("redis-server",), workdir="/data")
    return _with_user("redis", image) if service.user else image


def _nats(service: Service, machine: Machine) -> Image:
    program = f"{PROGRAMS}/nats-server"
    return Image(argv=(program, *service.command), mounts=(_file(machine.nats, program),))


def _postgres(service: Service, machine: Machine) -> Image:
    image = Image(
        argv=("/bin/sh", "-c", _INITDB, "postgres", *service.command),
        path=f"{machine.postgres}:{SYSTEM_PATH}",
        environment={"PGDATA": "/var/lib/postgresql/data"},
        folders=("/run/postgresql",),
        stop_signal=signal.SIGINT,
    )
    return _with_user("postgres", image)


def _with_user(name: str, image: Image) -> Image:
    """The image run by a user of its own, who has the number that this machine gives the name."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise Misconfigured(f"There is no user {name} here; its Debian package makes one.") from None
    return msgspec.structs.replace(image, user=name, uid=found.pw_uid, gid=found.pw_gid)


_KNOWN: Final[Mapping[str, Callable[[Service, Machine], Image]]] = {
    "tykio/tyk-gateway": _tyk,
    "redis": _redis,
    "nats": _nats,
    "postgres": _postgres,
}
