"""What can be done to many jobs at once, in words and in rights."""

from typing import Any, Final, NamedTuple

from console.accounts.acts import Act
from signalbox.program.errors import InvalidRequest
from signalbox.wire.names import PRIORITIES


class Kind(NamedTuple):
    """An act on the jobs of a selection.

    right: who may. verb: of a button. what: happens to each job. undo: whether it can be taken back, in words.
    is_destroying: jobs end, or something is lost.
    """

    right: Act
    verb: str
    what: str
    undo: str
    is_destroying: bool


KINDS: Final[dict[str, Kind]] = {
    "cancel": Kind(
        Act.JOBS_CANCEL,
        "Cancel",
        "A queued job never runs. The holder of a running one is asked to stop it, which not every model allows. "
        "A job that has ended is left as it is.",
        "A cancelled job cannot be brought back: its owner has to submit it again.",
        is_destroying=True,
    ),
    "retry": Kind(
        Act.JOBS_RETRY,
        "Retry",
        "Each dead letter is run again as a new job of its account, once. A job that is none is left as it is: its "
        "input is gone.",
        "A new job can be cancelled like any other.",
        is_destroying=False,
    ),
    "redrive": Kind(
        Act.JOBS_REDRIVE,
        "Redrive",
        "Each dead letter is run again as a new job of its account, once.",
        "A new job can be cancelled like any other.",
        is_destroying=False,
    ),
    "discard": Kind(
        Act.JOBS_DISCARD,
        "Discard",
        "Each dead letter is removed with its input.",
        "A dead letter that was discarded cannot be brought back.",
        is_destroying=True,
    ),
    "delete": Kind(
        Act.JOBS_DELETE,
        "Delete",
        "Each ended job is deleted for good: its result, its dead letter and its row. A job that has not ended is left "
        "as it is.",
        "A deleted job cannot be brought back.",
        is_destroying=True,
    ),
    "priority": Kind(
        Act.JOBS_CHANGE,
        "Raise",
        "Each job that waits and was never begun gets the higher priority, as long as its model's queue takes it. A "
        "job that has it already stays as it is.",
        "A priority can be raised, not lowered: this cannot be undone.",
        is_destroying=False,
    ),
}


def kind_of(act: str) -> Kind:
    """The act of that name. Raises :class:`InvalidRequest`."""
    found = KINDS.get(act)
    if found is None:
        raise InvalidRequest(f"Choose what is to be done: {', '.join(KINDS)}.")
    return found


def options_of(act: str, given: dict[str, Any]) -> dict[str, str]:
    """The options of an act, and no others. Raises :class:`InvalidRequest`."""
    if act == "redrive" and given.get("with_version"):
        return {"with_version": str(given["with_version"])}
    if act != "priority":
        return {}
    priority = given.get("priority", PRIORITIES[0])
    if priority not in PRIORITIES[:-1]:
        raise InvalidRequest(f"A priority is raised to {' or '.join(PRIORITIES[:-1])}.")
    return {"priority": str(priority)}
