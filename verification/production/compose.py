"""``docker-compose.yml`` as typed services. A key that is not known here is refused, so none is ignored."""

import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from signalbox.program.errors import Misconfigured

LARGEST_BYTES: Final = 1024 * 1024
_EXTENSION: Final = "x-"
_OF_A_NETWORK: Final = "net."
_SIGN: Final = re.compile(r"\$(?:(?P<sign>\$)|\{(?P<name>[A-Z][A-Z0-9_]*):-(?P<default>[^}$]*)\})?")
_DURATION_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SIZE_BYTES: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class Build(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an image of ours is made."""

    context: str
    dockerfile: str
    target: str


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check that runs beside a service. test: ``CMD`` and arguments, or ``CMD-SHELL`` and a line for ``sh``."""

    test: tuple[str, ...]
    interval: str = "30s"
    timeout: str = "30s"
    retries: int = 3

    @property
    def argv(self) -> tuple[str, ...]:
        """What to run."""
        kind, *arguments = self.test
        if kind == "CMD":
            return tuple(arguments)
        if kind == "CMD-SHELL" and len(arguments) == 1:
            return ("/bin/sh", "-c", arguments[0])
        raise Misconfigured(f"healthcheck: {kind!r} is neither CMD nor CMD-SHELL with one line.")


class Needed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition on another service that must hold before this one starts."""

    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Attached(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A service on a network. aliases: names of it there besides its own."""

    aliases: tuple[str, ...] = ()


class LogOptions(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"max_size": "max-size", "max_file": "max-file"},
):
    """How much of a log is kept."""

    max_size: str
    max_file: str


class Logging(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a log goes."""

    driver: Literal["json-file"]
    options: LogOptions


class Service(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One service as declared."""

    image: str
    build: Build | None = None
    command: tuple[str, ...] = ()
    user: str = ""
    hostname: str = ""
    env_file: str = ""
    environment: dict[str, str | int | float] = {}
    secrets: tuple[str, ...] = ()
    networks: tuple[str, ...] | dict[str, Attached | None] = ()
    ports: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    depends_on: dict[str, Needed] = {}
    healthcheck: HealthCheck | None = None
    restart: Literal["no", "on-failure", "unless-stopped", "always"] = "no"
    stop_grace_period: str = "10s"
    mem_limit: str = ""
    cpu_shares: int = 1024
    init: bool = False
    read_only: bool = False
    tmpfs: tuple[Literal["/tmp"], ...] = ()  # noqa: S108  the container's own, which each has here
    security_opt: tuple[Literal["no-new-privileges:true"], ...] = ()
    sysctls: dict[str, int] = {}
    logging: Logging | None = None
    profiles: tuple[str, ...] = ()

    @property
    def on(self) -> dict[str, tuple[str, ...]]:
        """Networks in the order declared, each with the aliases there."""
        if isinstance(self.networks, tuple):
            return dict.fromkeys(self.networks, ())
        return {name: (found.aliases if found else ()) for name, found in self.networks.items()}

    @property
    def ends(self) -> bool:
        """Whether the service does one task and exits."""
        return self.restart in {"no", "on-failure"}


class DeclaredNetwork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One network. internal: nothing of it reaches outside."""

    internal: bool = False


class SecretFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A secret, kept in a file of the host."""

    file: str


class Compose(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    services: dict[str, Service]
    networks: dict[str, DeclaredNetwork] = {}
    volumes: dict[str, None] = {}
    secrets: dict[str, SecretFile] = {}

    def problems(self) -> list[str]:
        """Names that are used and declared nowhere, and settings of the kernel that are not a network's own."""
        found = []
        for name, service in self.services.items():
            found += [
                f"{name}: only sysctls of a network are a container's own here, not {each}"
                for each in service.sysctls
                if not each.startswith(_OF_A_NETWORK)
            ]
            used: dict[str, tuple[Iterable[str], Container[str]]] = {
                "network": (service.on, self.networks),
                "secret": (service.secrets, self.secrets),
                "service": (service.depends_on, self.services),
                "volume": (map(_volume, filter(_is_volume, service.volumes)), self.volumes),
            }
            for kind, (names, declared) in used.items():
                found += [f"{name}: there is no {kind} {each}" for each in names if each not in declared]
        return found


def read(path: Path, environment: Mapping[str, str]) -> Compose:
    """The file without the services of profiles, its variables from ``environment``.

    Raises :class:`Misconfigured` naming what is wrong or not known.
    """
    text = path.read_bytes()
    if len(text) > LARGEST_BYTES:
        raise Misconfigured(f"{path} is larger than {LARGEST_BYTES} bytes.")
    try:
        found = msgspec.convert(document(text, environment), Compose)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise Misconfigured(f"{path}: {error}.") from error
    if problems := found.problems():
        raise Misconfigured(f"{path}: {'; '.join(problems)}.")
    return msgspec.structs.replace(
        found, services={name: service for name, service in found.services.items() if not service.profiles}
    )


def document(text: bytes, environment: Mapping[str, str]) -> Any:
    """A file as compose reads it: without extension fields, its variables replaced."""
    return _plain(yaml.safe_load(text), environment)


def start_order(services: Mapping[str, Service]) -> list[str]:
    """Names, each after those it depends on. Raises :class:`Misconfigured` when they depend on one another."""
    order: list[str] = []
    while len(order) < len(services):
        ready = [
            name
            for name, service in services.items()
            if name not in order and all(other in order for other in service.depends_on)
        ]
        if not ready:
            left = ", ".join(sorted(set(services).difference(order)))
            raise Misconfigured(f"These services wait for one another: {left}.")
        order += ready
    return order


def duration_s(text: str) -> float:
    """``1m30s`` in seconds."""
    if not re.fullmatch(r"(\d+(?:\.\d+)?(?:ms|s|m|h))+", text):
        raise Misconfigured(f"{text!r} is no duration; write it like 1m30s.")
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    return sum(float(number) * _DURATION_S[unit] for number, unit in parts)


def size_bytes(text: str) -> int:
    """``8m`` in bytes."""
    found = re.fullmatch(r"(\d+)([bkmg]?)b?", text.lower())
    if found is None:
        raise Misconfigured(f"{text!r} is no size; write it like 8m.")
    return int(found[1]) * _SIZE_BYTES[found[2]]


def _plain(node: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        return {
            name: _plain(value, environment) for name, value in node.items() if not str(name).startswith(_EXTENSION)
        }
    if isinstance(node, list):
        return [_plain(value, environment) for value in node]
    return _replaced(node, environment) if isinstance(node, str) else node


def _replaced(text: str, environment: Mapping[str, str]) -> str:
    """``$$`` is ``$``; ``${NAME:-default}`` is the variable, or the default where that is unset or empty."""

    def value(found: re.Match[str]) -> str:
        if found["sign"]:
            return "$"
        if not found["name"]:
            raise Misconfigured(
                f"A variable without a default in {text!r}: write ${{NAME:-default}}, or $$ for the sign alone."
            )
        return environment.get(found["name"]) or found["default"]

    return _SIGN.sub(value, text)


def _is_volume(mount: str) -> bool:
    return not mount.startswith((".", "/"))


def _volume(mount: str) -> str:
    return mount.partition(":")[0]
