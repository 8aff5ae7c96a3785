"""Reads what customers sent and got, for operators who may. Each reading leaves one row in the audit."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.asking import ask
from console.audit.acts import Target, act, check, preparing
from console.jobs.models import Job
from console.payloads import stored
from console.payloads.request import Request
from console.payloads.stored import Part, Stored
from signalbox.bus.client import Bus
from signalbox.program.errors import Unavailable
from signalbox.wire import tensors
from signalbox.wire.tensors import Tensor

READ_S: Final = 20.0
"""Longest that one payload is read."""
_TURN_S: Final = 5.0
_turns: Final = threading.BoundedSemaphore(2)
"""Readers at once: each may hold a whole payload, and a copy of it as a file."""


class Reading(NamedTuple):
    """What was read. tensors: None where there is nothing, and ``why`` says so. is_frame: it is one of tensors."""

    part: Part
    request: Request
    tensors: list[Tensor] | None
    size_bytes: int = 0
    why: str = ""
    where: str = ""

    @property
    def image_route(self) -> str:
        """Name of the route of its images."""
        return f"job-{self.part}-image"


def require(actor: Actor, job_id: str, part: Part) -> None:
    """Raise :class:`Forbidden` for those who may not read it; that is in the audit too."""
    check(actor, Act.JOBS_PAYLOAD, Target("job", job_id), asked={"read": part.value})


@contextmanager
def turn() -> Iterator[None]:
    """A place for one who reads and shows a payload. Raises :class:`Unavailable` while others have them all."""
    if not _turns.acquire(timeout=_TURN_S):
        raise Unavailable("Too many inputs and outputs are read at once.", retry_after_s=2.0)
    try:
        yield
    finally:
        _turns.release()


def read(actor: Actor, job_id: str, part: Part, *, what: str = "") -> Reading:
    """The input or output of a job, to be held within :func:`turn`. what: it is read for, beside showing it.

    Raises :class:`Forbidden`, and as :func:`console.payloads.stored.read`.
    """
    target = Target("job", job_id)
    asked: dict[str, Any] = {"read": part.value, **({"as": what} if what else {})}
    check(actor, Act.JOBS_PAYLOAD, target, asked=asked)
    with preparing(actor, Act.JOBS_PAYLOAD, target, asked=asked):
        found = find(job_id, part)
    with act(actor, Act.JOBS_PAYLOAD, target, asked=asked) as change:
        size = len(found.frame) if found.frame is not None else 0
        change.after = {**asked, "account": found.request.account_id, "bytes": size}
    return _reading(part, found)


def find(job_id: str, part: Part) -> Stored:
    """Without an audit row: for the rest of a reading that has one. Raises as :func:`read`."""
    row = Job.objects.filter(pk=job_id).first()

    async def asked(bus: Bus) -> Stored:
        try:
            async with asyncio.timeout(READ_S):
                return await stored.read(bus, job_id, part, row)
        except TimeoutError as error:
            raise Unavailable(f"The {part} could not be read within {READ_S:.0f} s.", retry_after_s=5.0) from error

    return ask("payloads", asked)


def decoded(found: Stored) -> list[Tensor]:
    """Its tensors; none where it is gone, or no frame."""
    try:
        return tensors.decode(found.frame) if found.frame else []
    except msgspec.MsgspecError:
        return []


def _reading(part: Part, found: Stored) -> Reading:
    if found.frame is None:
        return Reading(part, found.request, None, why=found.why)
    size = len(found.frame)
    try:
        return Reading(part, found.request, tensors.decode(found.frame) if found.frame else [], size, "", found.where)
    except msgspec.MsgspecError:
        return Reading(part, found.request, None, size, f"Its {size} bytes are no tensors.", found.where)
