"""The compose file with fewer plugins or more devices, as docs/deploy.md tells an operator to change it."""

from typing import Final

from msgspec.structs import replace

from verification.production.compose import Compose, SecretFile, Service

PLUGIN: Final = "plugin-"
WORKER: Final = "worker-"
LOCKS: Final = "locks"
INTERVALS: Final = "intervals.log"
_INTERVAL_LOG: Final = "SIGNALBOX_WORKER_INTERVAL_LOG"
_DEVICE: Final = "SIGNALBOX_WORKER_DEVICE"
_FIRST: Final = "worker-1"


def with_plugins(compose: Compose, count: int) -> Compose:
    """The first ``count`` plugins and nothing that waits for the others."""
    gone = {name for name in compose.services if _number(name, PLUGIN) > count}
    return replace(
        compose,
        services={
            name: replace(service, depends_on={n: c for n, c in service.depends_on.items() if n not in gone})
            for name, service in compose.services.items()
            if name not in gone
        },
    )


def with_devices(compose: Compose, count: int) -> Compose:
    """Of one device the file as it is; of more, a worker each: ``worker-1`` again under other names."""
    if count == 1:
        return compose
    others = {name: service for name, service in compose.services.items() if not _number(name, WORKER)}
    pattern = compose.services[_FIRST]
    workers = {f"{WORKER}{n}": _worker(pattern, n) for n in range(1, count + 1)}
    first = compose.secrets[f"nats_{_FIRST}"]
    secrets = {f"nats_{name}": SecretFile(file=first.file.replace(_FIRST, name)) for name in workers}
    return replace(compose, services={**others, **workers}, secrets={**compose.secrets, **secrets})


def with_intervals(compose: Compose) -> Compose:
    """Every worker writes into :data:`INTERVALS` of the volume of the locks, which they share."""
    path = f"/var/lib/signalbox/{LOCKS}/{INTERVALS}"
    services = dict(compose.services)
    for name in workers(compose):
        environment = {**services[name].environment, _INTERVAL_LOG: path}
        services[name] = replace(services[name], environment=environment)
    return replace(compose, services=services)


def workers(compose: Compose) -> list[str]:
    """Names of the workers, which are their NATS users too."""
    return [name for name in compose.services if _number(name, WORKER)]


def with_front_at(compose: Compose, published: dict[int, int]) -> Compose:
    """Variables that name a published port of this machine, after others were chosen."""

    def moved(value: str | float) -> str | float:
        for declared, chosen in published.items():
            address = f"http://localhost:{declared}"
            value = f"http://localhost:{chosen}" if value == address else value
        return value

    return replace(
        compose,
        services={
            name: replace(service, environment={n: moved(v) for n, v in service.environment.items()})
            for name, service in compose.services.items()
        },
    )


def _worker(pattern: Service, number: int) -> Service:
    name = f"{WORKER}{number}"
    environment = {
        key: value.replace(_FIRST, name) if isinstance(value, str) else value
        for key, value in pattern.environment.items()
    }
    return replace(
        pattern,
        environment={**environment, _DEVICE: f"cpu:{number - 1}"},
        secrets=tuple(secret.replace(_FIRST, name) for secret in pattern.secrets),
    )


def _number(name: str, stem: str) -> int:
    """N of ``plugin-N``, 0 where it is something else."""
    number = name.removeprefix(stem)
    return int(number) if name.startswith(stem) and number.isdecimal() else 0
