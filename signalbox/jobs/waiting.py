"""Says why no worker begins a model's jobs now: the same words for the job API and the console. Pure."""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from signalbox.jobs.fetches import fetch_of
from signalbox.jobs.starts import coming, why_none
from signalbox.wire import placement
from signalbox.wire.modeldocs import Model
from signalbox.wire.scaling import Host
from signalbox.wire.workerdocs import Worker

_MAY_RUN: Final = frozenset({"ready", "loading", "spare", "crowded"})


class Decision(NamedTuple):
    """What was decided on a model."""

    is_enabled: bool
    replicas: int
    is_paused: bool


def able(model: str, workers: Iterable[Worker]) -> list[Worker]:
    """Those of the workers that may serve a model, and are not leaving."""
    return [one for one in workers if one.state != "draining" and (not one.serves or model in one.serves)]


def serving(model: Model, workers: Iterable[Worker]) -> list[Worker]:
    """Workers at the model's homes that are not leaving. workers: presence."""
    found = able(model.name, workers)
    homes = placement.homes_of(model, found)
    return [worker for worker in found if worker.device.id in homes]


def hindrance(
    model: str,
    version: int,
    decided: Decision | None,
    workers: Collection[Worker],
    hosts: Collection[Host] = (),
    now: float = 0.0,
) -> str:
    """Why a job of a model's version is not begun now, in words that follow "waiting:"; empty where it can be.

    decided: None where there is no such model. workers, hosts: presence. now: UTC seconds.
    """
    if decided is None:
        return f"there is no model {model}"
    if not decided.is_enabled:
        return f"the model {model} is disabled"
    if decided.replicas <= 0:
        return f"the model {model} has no replicas"
    serving = able(model, workers)
    is_coming = not serving and bool(coming(hosts, workers, now))
    if not serving and not is_coming:
        return ": ".join(filter(None, (f"no worker serves {model}", why_none(hosts))))
    if decided.is_paused:
        return f"{model} is paused by an operator"
    if is_coming:
        return f"no worker serves {model} yet: one is being started"
    known = [one for worker in serving for one in worker.models if (one.model, one.version) == (model, version)]
    states = {one.state for one in known}
    if states & _MAY_RUN:
        return ""
    if (fetch := fetch_of(model, version, serving)) is not None:
        if fetch.fault:
            return f"version {version} of {model} cannot be fetched now: {fetch.cause}"
        return ": ".join(filter(None, (f"version {version} of {model} is being fetched", fetch.words)))
    if "failed" in states:
        return f"version {version} of {model} does not load"
    return ""
