"""Which versions of a model are served, as in TensorFlow Serving: all, the latest ones, or those that are named. Pure.

A policy is what the database and REST have: ``{"kind": "all"}``, ``{"kind": "latest", "count": 2}``, or
``{"kind": "specific", "versions": [1, 4]}``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from console.bounds import MOST_NUMBER
from signalbox.program.errors import InvalidRequest
from signalbox.program.words import counted
from signalbox.repositories.layouts import MOST_VERSIONS

ALL: Final = "all"
LATEST: Final = "latest"
SPECIFIC: Final = "specific"
KINDS: Final = (ALL, LATEST, SPECIFIC)
_PARTS: Final = {ALL: set(), LATEST: {"count"}, SPECIFIC: {"versions"}}


def everything() -> dict[str, Any]:
    """The policy of a model for which nothing was said."""
    return {"kind": ALL}


def latest(count: int) -> dict[str, Any]:
    """At least one, and never more than a model may have."""
    return {"kind": LATEST, "count": max(1, min(count, MOST_VERSIONS))}


def specific(versions: Iterable[int]) -> dict[str, Any]:
    """These. Raises :class:`InvalidRequest` as :func:`checked`."""
    return checked({"kind": SPECIFIC, "versions": list(versions)})


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The policy as the database has it. Raises :class:`InvalidRequest` for what is no policy."""
    kind = given.get("kind")
    if kind not in KINDS or set(given) != {"kind", *_PARTS[kind]}:
        raise InvalidRequest(
            'policy: is {"kind": "all"}, {"kind": "latest", "count": N} or {"kind": "specific", "versions": [...]}.'
        )
    if kind == LATEST:
        if not _is_number(given["count"], 1, MOST_VERSIONS):
            raise InvalidRequest(f"policy: count is from 1 to {MOST_VERSIONS}.")
        return {"kind": LATEST, "count": given["count"]}
    if kind == SPECIFIC:
        versions = given["versions"]
        if not isinstance(versions, list) or not 1 <= len(versions) <= MOST_VERSIONS:
            raise InvalidRequest(f"policy: versions is a list of 1 to {MOST_VERSIONS} numbers.")
        if not all(_is_number(one, 0, MOST_NUMBER) for one in versions):
            raise InvalidRequest(f"policy: a version is a number up to {MOST_NUMBER}.")
        return {"kind": SPECIFIC, "versions": sorted(set(versions))}
    return everything()


def selected(policy: Mapping[str, Any], ready: Mapping[int, bool]) -> set[int]:
    """The versions that it selects. ready: each that may serve, and whether a worker has ever had it ready.

    Of the latest ones the older stay until the new ones are ready.
    """
    if policy["kind"] == SPECIFIC:
        return ready.keys() & set(policy["versions"])
    if policy["kind"] == LATEST:
        newest = sorted(ready)[-policy["count"] :]
        working = sorted(number for number, is_ready in ready.items() if is_ready)[-policy["count"] :]
        return {*newest, *working}
    return set(ready)


def shown(policy: Mapping[str, Any]) -> str:
    """In words."""
    if policy["kind"] == LATEST:
        return "the latest" if policy["count"] == 1 else f"the latest {policy['count']}"
    if policy["kind"] == SPECIFIC:
        return f"only {', '.join(map(str, policy['versions']))}"
    return "all"


def why_not(policy: Mapping[str, Any]) -> str:
    """Why a version that may serve is not selected."""
    if policy["kind"] == LATEST:
        return f"newer ones are: {counted(policy['count'], 'version')} at most"
    return f"the policy names {shown(policy)}"


def _is_number(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
