"""Submits many jobs in one call: each is accepted or refused by itself."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from msgspec.structs import replace

from gateway_plugin.admission.acceptance import Acceptance, Submission
from gateway_plugin.admission.idempotency import IdempotencyEntry
from gateway_plugin.admission.keyring import SUBMIT, require_scope
from gateway_plugin.request import Request
from gateway_plugin.service.jobs import Prediction
from signalbox.jobs.records import Found
from signalbox.program.errors import QueueFull, SignalboxError
from signalbox.wire.keydocs import ApiKey

Became = Found | SignalboxError
"""A job as it is known now, or why it was refused."""
Read = Callable[[], Awaitable[Sequence[Prediction | SignalboxError]]]
"""Reads the jobs that a body asks for."""
_NOT_NAMED: Final = "-"


class ManyJobs:
    """Submissions of many jobs. An Idempotency-Key names the first id, and the others count up from it.

    A job whose id is there is not submitted again, whatever has become of it; so a repeat completes what an earlier
    call left, each job in the class that it was named for.
    """

    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance

    async def submit(
        self, key: ApiKey, request: Request, target: Sequence[object], read: Read
    ) -> tuple[list[Became], bool]:
        """What became of each, in order, and whether an earlier call had submitted all that are there.

        target: see :meth:`Jobs.submit`. Raises :class:`Forbidden`, and as ``read``, :meth:`Acceptance.look_up_many`
        and :meth:`Acceptance.write_many`: then none is accepted by this call.
        """
        require_scope(key, SUBMIT)
        asked = await read()
        idem, known = await self._acceptance.look_up_many(request, key, target, len(asked))
        became: dict[int, Became] = dict(known)
        admitted: dict[int, Submission] = {}
        try:
            await self._admit(key, request, asked, idem, became, admitted)
            if idem is not None:
                letters = idem.classes.ljust(len(asked), _NOT_NAMED)
                named = {number: one.job.priority[0] for number, one in admitted.items()}
                idem = idem._replace(classes="".join(named.get(n, letter) for n, letter in enumerate(letters)))
            is_whole = len(admitted) + len(known) == len(asked)
            written = await self._acceptance.write_many(admitted, idem, key.share, is_whole=is_whole)
        finally:
            for one in admitted.values():
                one.place.leave()
        for number, seq in written.items():
            job = admitted[number].job
            became[number] = seq if isinstance(seq, SignalboxError) else Found.unclaimed(job, seq)
        return [became[number] for number in range(len(asked))], bool(known) and not written

    async def _admit(
        self,
        key: ApiKey,
        request: Request,
        asked: Sequence[Prediction | SignalboxError],
        idem: IdempotencyEntry | None,
        became: dict[int, Became],
        admitted: dict[int, Submission],
    ) -> None:
        """Add to ``admitted`` the jobs that may be written, by number, and to ``became`` why the others may not."""
        full: dict[tuple[str, str], QueueFull] = {}
        for number, one in enumerate(asked):
            if number in became:
                continue
            if isinstance(one, SignalboxError):
                became[number] = one
                continue
            ready, inputs, options = one
            queue = (ready.model.name, options.priority)
            if queue in full:  # it was measured for this call
                became[number] = full[queue]
                continue
            entry = idem.of_one(number) if idem is not None else None
            try:
                submission = await self._acceptance.admit(
                    request.headers, key, ready, inputs, options, entry, is_waiting=False
                )
            except SignalboxError as error:
                if isinstance(error, QueueFull):
                    full[queue] = error
                became[number] = error
            else:
                admitted[number] = replace(submission, idem=None)  # the call's names them all
