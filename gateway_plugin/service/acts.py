"""What owners do with their jobs: change a waiting one, have a dead letter run again, delete an ended one."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from gateway_plugin.admission.acceptance import Acceptance
from gateway_plugin.admission.keyring import CANCEL, SUBMIT, require_model, require_scope, require_urgent
from gateway_plugin.admission.ownedjobs import OwnedJobs
from gateway_plugin.tables.catalog import Catalog
from signalbox.bus.client import Bus
from signalbox.jobs import deadletters, deletion
from signalbox.jobs.change import LONGEST_DEADLINE_S, change
from signalbox.jobs.deadletters import Letter
from signalbox.jobs.records import Found, Records
from signalbox.jobs.refusals import why_no_input
from signalbox.jobs.repair import move_up
from signalbox.program.errors import (
    Conflict,
    InputLost,
    InvalidRequest,
    NoLongerKept,
    NotFound,
    Poisoned,
    SignalboxError,
)
from signalbox.wire.asks import ListedJob
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Record
from signalbox.wire.names import PRIORITIES, Priority

_URGENT: Final = PRIORITIES[0]


class Deletion(NamedTuple):
    """A deleted job. is_gone: whether nothing is left of it but its tombstone."""

    job_id: str
    is_gone: bool


class JobActs:
    """Acts on jobs, for the keys of their owners. wall: UTC clock, seconds."""

    def __init__(
        self,
        bus: Bus,
        records: Records,
        catalog: Catalog,
        owned: OwnedJobs,
        acceptance: Acceptance,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._records = records
        self._catalog = catalog
        self._owned = owned
        self._acceptance = acceptance
        self._wall = wall

    # ------------------------------------------------------------------ change

    async def change(self, key: ApiKey, job_id: str, *, priority: Priority | None, deadline_s: float | None) -> Found:
        """Raise the priority of a waiting job, or move its deadline; returns it as it then stands.

        deadline_s: seconds from now. None: as it is. Raises :class:`Forbidden`, as :meth:`OwnedJobs.find`,
        :meth:`Acceptance.admit_raised` and :func:`change`, and :class:`InvalidRequest` for a deadline that is too far
        from the job's acceptance.
        """
        require_scope(key, CANCEL)
        if priority == _URGENT:
            require_urgent(key)
        found = await self._owned.find(job_id, key.account_id)
        record = found.record
        deadline_at = None if deadline_s is None else self._wall() + deadline_s
        if deadline_at is not None and deadline_at > record.created_at + LONGEST_DEADLINE_S:
            raise InvalidRequest(
                f'"deadline_s" must end at most {LONGEST_DEADLINE_S:.0f} seconds after the job was accepted.',
                field="deadline_s",
            )
        if deadline_at is not None and deadline_at <= record.not_before:
            raise InvalidRequest(
                '"deadline_s" counts from now, and the job is not to run before then: give more, or cancel the job.',
                field="deadline_s",
            )
        return await change(
            self._bus, self._records, found, priority=priority, deadline_at=deadline_at, admit=self._admit
        )

    async def _admit(self, raised: Record) -> None:
        model = self._catalog.find(raised.model)
        if model is not None:
            await self._acceptance.admit_raised(model, raised.account_id, raised.priority)

    # ------------------------------------------------------------------ retry

    async def retry(self, key: ApiKey, job_id: str, *, after: str = "") -> Found:
        """Run a job again that was given up, as a new one, once for each ``after``; returns the new one.

        after: the job that it was run again as before; empty for the first time. Raises :class:`Forbidden`, as
        :meth:`OwnedJobs.find`, as any acceptance, and :class:`Conflict` with the reason where it cannot be run again.
        """
        require_scope(key, SUBMIT)
        letter = await self._letter(job_id, key.account_id)
        if letter.notice is not None and letter.notice.error.code == Poisoned.code:
            raise Conflict("Its input ended the process that ran it again and again; only an operator may redrive it.")
        job = letter.job
        if job is not None:
            require_model(key, job.model)
            if job.priority == _URGENT:
                require_urgent(key)
        try:
            done = await deadletters.redrive(self._bus, job_id, after=after, accept=partial(self._accept, key))
        except InputLost as error:
            raise Conflict(error.public_message, job_id=job_id) from error
        return await self._owned.find(done.job_id, key.account_id)

    async def _letter(self, job_id: str, account: str) -> Letter:
        """The dead letter of an account's job; it stays longer than the job's record."""
        known = await self._known(job_id, account)
        if isinstance(known, Letter):
            return known
        record = known.record
        if not record.state.is_terminal:
            raise Conflict(f"The job has not ended, it is {record.state}: nothing is to be run again.")
        try:
            return await deadletters.find(self._bus, job_id)
        except NotFound as error:
            code = record.error.code if record.error is not None else ""
            why = why_no_input(record.state, code, record.finished_at)
            raise Conflict(f"{why} Submit it again.", state=record.state.value) from error

    async def _known(self, job_id: str, account: str) -> Found | Letter:
        """A job that was not deleted, by its record or message, or by its letter where only that is left of it."""
        try:
            return await self._owned.find(job_id, account)
        except NoLongerKept as error:
            if "kept_s" not in error.facts:
                raise
            unknown: SignalboxError = error
        except NotFound as error:
            unknown = error
        try:
            letter = await deadletters.find(self._bus, job_id)
        except NotFound:
            raise unknown from None
        if letter.job is None or letter.job.account_id != account:
            raise unknown
        return letter

    async def _accept(self, key: ApiKey, letter: Letter, new_id: str) -> None:
        """Submit a letter's job as a submission of the key."""
        model = self._catalog.find(letter.model, key)
        if model is None or not model.is_enabled:
            raise Conflict(f"The model {letter.model} is not there or not enabled; nothing would run the job.")
        job = deadletters.again(letter, new_id, key_id=key.id, now=self._wall(), deadline_s=model.limits.deadline_s)
        if not any(one.version == job.version for one in model.versions):
            raise Conflict(f"The model {job.model} no longer serves version {job.version}, which the job is for.")
        frame = await deadletters.input_of(self._bus, letter)
        await self._acceptance.write_again(job, frame, model, key.share)

    # ------------------------------------------------------------------ delete

    async def delete(self, key: ApiKey, job_id: str) -> Deletion:
        """Delete an ended job. Idempotent: asked again it tells whether all is gone.

        Raises :class:`Forbidden`, as :meth:`OwnedJobs.known`, :class:`Conflict` for an open job, and as
        :func:`deletion.delete`.
        """
        done = await self.begin_deletion(key, job_id)
        is_gone = await deletion.is_gone(self._bus, done.record)
        if not is_gone and done.record.deleted_at <= self._wall() - deletion.LOOKED_AT_S:
            await move_up(self._records, done.record, done.revision)
        return Deletion(job_id, is_gone)

    async def begin_deletion(self, key: ApiKey, job_id: str, listed: ListedJob | None = None) -> Found:
        """Delete an ended job without asking what is left of it; returns its tombstone. Raises as :meth:`delete`.

        listed: the job as the console lists it for this account, where only that may be left of it.
        """
        require_scope(key, CANCEL)
        try:
            found = await self._owned.known(job_id, key.account_id)
        except (NotFound, NoLongerKept):
            left = await self._left(job_id, key.account_id, listed)
            if left is None:
                raise
            found = left
        return await deletion.delete(self._records, found, clock=self._wall)

    async def _left(self, job_id: str, account: str, listed: ListedJob | None) -> Found | None:
        """An ended job of which there is no record any more."""
        try:
            letter = await deadletters.find(self._bus, job_id)
        except NotFound:
            return deletion.of_listed(listed, account) if listed is not None else None
        return deletion.of_letter(letter) if letter.job is not None and letter.job.account_id == account else None
