"""Jobs that this program submits for accounts: as the gateway submits its callers', and followed to their ends."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from gateway_plugin.admission.keyring import SUBMIT, Keyring, require_scope
from gateway_plugin.admission.queues import QueueAdmission
from gateway_plugin.admission.submission import SubmitOptions, Submitter
from gateway_plugin.codec.bodies import BodyCodec, DecodedInputs
from gateway_plugin.codec.forms import Form
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.outbound.settings import OutboundSettings
from gateway_plugin.service.jobs import failure
from gateway_plugin.service.waiting import End, Waiters
from gateway_plugin.tables.catalog import Catalog, require_open
from gateway_plugin.tables.liveworkers import LiveWorkers
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.jobs import joblog, payloads
from signalbox.jobs.cancel import OWNER, cancel
from signalbox.jobs.deletion import refusal
from signalbox.jobs.records import Found, Records
from signalbox.program import log
from signalbox.program.errors import Forbidden, SignalboxError, Unauthorized
from signalbox.wire.access import is_listed
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import State
from signalbox.wire.modeldocs import Model, Serving
from signalbox.wire.names import Bucket
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker

_STALE_KEYS_S: Final = 14.0
_FAIR_ROOM: Final = 32
"""Places of a queue that jobs in ``lo`` leave to others, as a gateway has it by default."""
_RUNS: Final = 2
"""On each device: one that runs, and one that waits for it."""
_PART: Final = 4
"""All that is done at once for one purpose has one of so many places in a model's queue."""
_RECHECK_S: Final = 10.0
"""How long until an event of a job's end is thought lost."""


class AccountJobs:
    """The parts of a gateway that jobs need, over the outbound program's connection. Jobs are in class ``lo``."""

    def __init__(self, bus: Bus, settings: OutboundSettings) -> None:
        self._bus = bus
        self._keys = Table(bus, Bucket.KEYS, ApiKey, asks_leader=True)
        self._models = Table(bus, Bucket.MODELS, Model, is_packed=True)
        self._serving = Table(bus, Bucket.SERVING, Serving, is_packed=True)
        self._workers = Table(bus, Bucket.WORKERS, Worker)
        self._desired = Table(bus, Bucket.DESIRED, Desired)
        self._keyring = Keyring(self._keys, (), stale_s=_STALE_KEYS_S)
        self._catalog = Catalog(self._models, self._serving)
        self._live = workers = LiveWorkers(self._workers, self._desired)
        self._records = Records(bus)
        self.codec = BodyCodec(settings)
        self._admission = QueueAdmission(bus, workers, fair_room=_FAIR_ROOM)
        self._submitter = Submitter(bus, results_kept_s=settings.results_kept_s, workers=lambda: workers.present)
        self._waiters = Waiters(bus, self._records, recheck_s=_RECHECK_S)
        self._found_keys: dict[tuple[str, str], str] = {}

    async def start(self) -> None:
        """Read the tables. Raises :class:`Unavailable`."""
        for table in self._tables:
            await table.start()

    async def close(self) -> None:
        """Idempotent."""
        await self._submitter.close()
        await self._admission.close()
        await self.codec.close()
        for table in self._tables:
            await table.close()

    @property
    def _tables(self) -> tuple[Table[ApiKey], Table[Model], Table[Serving], Table[Worker], Table[Desired]]:
        return self._keys, self._models, self._serving, self._workers, self._desired

    # ------------------------------------------------------------------ who, and for which model

    def key(self, kid: str) -> ApiKey:
        """A key that may submit. Raises :class:`Unauthorized` where it has ended, :class:`Forbidden` where it may
        submit no more, and :class:`Unavailable`."""
        key = self._keyring.by_id(kid)
        require_scope(key, SUBMIT)
        return key

    def key_of_account(self, account: str, model: str) -> ApiKey:
        """One of an account's keys that may have a model run, and no other while that one may. Raises as :meth:`key`,
        :class:`Forbidden` where the account has none."""
        known = self._found_keys.get((account, model), "")
        found = self._keys.get(known)
        if found is None or not _may_submit(found, account, model) or not self._is_good(known):
            mine = (kid for kid, one in self._keys.items().items() if _may_submit(one, account, model))
            known = min(filter(self._is_good, mine), default="")
            if not known:
                raise Forbidden(
                    f'The account has no API key with the scope {SUBMIT} for the model "{model}": make one, or let a '
                    "key that it has use the model."
                )
            self._found_keys[account, model] = known
        return self.key(known)

    def _is_good(self, kid: str) -> bool:
        try:
            self._keyring.by_id(kid)
        except Unauthorized:
            return False
        return True

    def chosen(self, key: ApiKey, model: str, version: int | None = None) -> PreparedVersion:
        """The version that a job runs on. Raises as :meth:`Catalog.chosen`, and :class:`NotServing`."""
        ready = self._catalog.chosen(key, {}, model, version)
        require_open(ready.model)
        return ready

    def most_in_flight(self, key: ApiKey, model: str, window: int) -> int:
        """How many jobs may be open for one purpose: two runs of each device that serves the model, and no more than
        the window and a quarter of the model's queue. So a live caller waits for no more than what runs."""
        found = self._catalog.find(model, key)
        if found is None:
            return window
        at_once = found.batching.max_size if found.batching.rows_independent else 1
        # Of the workers of a device one runs, and the others stand by.
        devices = max(1, len({worker.device.id for worker in self._live.serving(found)}))
        return max(1, min(window, _RUNS * at_once * devices, found.limits.max_queue // _PART))

    # ------------------------------------------------------------------ a job

    async def find(self, job_id: str) -> Found | None:
        """A job that was submitted before, None where there is none or it is no longer kept."""
        return await self._records.find(job_id)

    async def read(
        self, key: ApiKey, body: bytes, model: str, version: int | None = None
    ) -> tuple[PreparedVersion, DecodedInputs]:
        """The inputs in a JSON body of a prediction. Raises as :meth:`BodyCodec.read` and :meth:`chosen`."""
        choose = partial(self._choose, key, model, version)
        _, ready, inputs = await self.codec.read(key.account_id, body, "", choose, Form.PREDICT)
        return ready, inputs

    def _choose(
        self, key: ApiKey, model: str, version: int | None, _fields: Mapping[str, Any]
    ) -> tuple[None, PreparedVersion]:
        return None, self.chosen(key, model, version)

    async def require_room(self, key: ApiKey) -> None:
        """Raise :class:`LimitExceeded` or :class:`Unavailable` where there is no room for results of the account."""
        await self._submitter.require_room(key.account_id, key.share.result_bytes)

    async def submit(
        self,
        key: ApiKey,
        ready: PreparedVersion,
        inputs: DecodedInputs,
        options: SubmitOptions,
        job_id: str,
        trace: str = "",
    ) -> None:
        """Submit a job, once. Raises what any submission raises; the retryable ones may pass. trace: of its caller."""
        await self._admission.admit(ready.model, key.account_id, options.priority)
        job = self._submitter.job(key, ready, inputs, options, trace=trace, job_id=job_id)
        seq = await self._submitter.accept(job, inputs.frame, share_bytes=key.share.stored_bytes)
        joblog.accepted(job, seq)

    async def end_of(self, job_id: str, timeout_s: float) -> End | None:
        """The job's end; None where it has not ended in time."""
        return await self._waiters.follow(job_id, timeout_s)

    async def frame_of(self, end: End, most_bytes: int) -> bytes | None:
        """The outputs of a job that succeeded, framed; None where they have more bytes than that.

        Raises the error that ended the job otherwise, or the one for a result that has been removed.
        """
        record = end.record
        if record.deleted_at:
            raise refusal(record)
        if record.state is not State.SUCCEEDED:
            raise failure(record)
        if record.ref is None:
            return end.body
        return await payloads.fetch(self._bus, record.ref) if record.ref.size <= most_bytes else None

    async def cancel(self, job_ids: list[str]) -> None:
        """Cancel what has not ended: best effort, as each job has a deadline."""
        await asyncio.gather(*map(self._cancel, job_ids))

    async def _cancel(self, job_id: str) -> None:
        found = None
        try:
            found = await self._records.find(job_id)
            if found is not None:
                await cancel(self._bus, self._records, found, by=OWNER, clock=time.time)
        except SignalboxError as error:
            about = joblog.ids(found.record) if found is not None else joblog.only_id(job_id)
            log.warning("outbound.job_not_cancelled", **about, reason=error.public_message)


def _may_submit(key: ApiKey, account: str, model: str) -> bool:
    return key.account_id == account and SUBMIT in key.scopes and is_listed(key, model)
