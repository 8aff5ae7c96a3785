"""Why requests of a model are joined into one run, or are not, in words for an operator."""

from typing import Any, NamedTuple

from console.catalog.lookup import version_of
from console.catalog.models import ServedModel
from signalbox.program.words import counted


class State(NamedTuple):
    """state: ``alone``, ``trying``, ``joined``, ``untried`` or ``refused``. detail: a sentence or two."""

    state: str
    detail: str


def state_of(model: ServedModel) -> State:
    """Of the version that requests without a label get. Of many models, prefetch ``versions``."""
    number = model.serving_version
    version = next((one for one in model.versions.all() if one.number == number), None)
    tried: dict[str, Any] | None = version.tried if version is not None else None
    if tried is not None and tried["differs"]:
        return State("refused", f"Each request runs alone. {found_in(tried)}")
    if not model.rows_independent:
        return State("alone", "Each request runs alone: the setting that its rows are independent is off.")
    if model.max_batch_size == 1:
        return State("alone", "Each request runs alone: the largest batch is 1.")
    if version is None:
        return State("trying", "No version serves yet.")
    if tried is None:
        return State("trying", f"Each request runs alone until a worker has loaded version {number} and tried it.")
    if not tried["joined"]:
        return State("untried", f"Each request runs alone. {found_in(tried)}")
    return State("joined", f"Up to {counted(model.max_batch_size, 'row')} in one run. {found_in(tried)}")


def found_in(tried: dict[str, Any]) -> str:
    """What a worker has found of joined requests of a version."""
    if tried["differs"]:
        return f"Joined, they get other answers. {tried['differs']}"
    parts = [f"Found equal, joined and alone: {', '.join(tried['joined'])}."] if tried["joined"] else []
    if tried["untried"]:
        parts.append(f"Not tried: {tried['untried']}")
    return " ".join(parts)


def difference(model: ServedModel) -> str:
    """How answers of joined requests differ at the version that requests without a label get; empty where none do."""
    number = model.serving_version
    tried = version_of(model, number).tried if number is not None else None
    return tried["differs"] if tried is not None else ""
