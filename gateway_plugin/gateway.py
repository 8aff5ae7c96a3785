"""The plugin without its listeners: tables, hooks and the dispatcher over one connection to NATS."""

from typing import Final, Self

from gateway_plugin.admission.acceptance import Acceptance
from gateway_plugin.admission.eventtokens import EventTokens
from gateway_plugin.admission.idempotency import Idempotency
from gateway_plugin.admission.keyring import Keyring
from gateway_plugin.admission.later import DelayedAdmission
from gateway_plugin.admission.limits import KeyLimits
from gateway_plugin.admission.ownedjobs import OwnedJobs
from gateway_plugin.admission.pool import bodies_pool
from gateway_plugin.admission.queues import QueueAdmission
from gateway_plugin.admission.refusals import REFUSED
from gateway_plugin.admission.submission import Submitter
from gateway_plugin.admission.usage import KeyCounts, KeyUse
from gateway_plugin.admission.webhooks import JobWebhooks
from gateway_plugin.api.calls import Method
from gateway_plugin.api.dialect import Dialects
from gateway_plugin.api.hello import Hello
from gateway_plugin.api.jobs.accountevents import AccountEvents
from gateway_plugin.api.jobs.acts import Acts
from gateway_plugin.api.jobs.events import Events
from gateway_plugin.api.jobs.listing import Listing
from gateway_plugin.api.jobs.many import Many
from gateway_plugin.api.jobs.manyacts import ActsOnMany
from gateway_plugin.api.jobs.reads import Reads
from gateway_plugin.api.jobs.rest import JobsRest
from gateway_plugin.api.jobs.results import Results
from gateway_plugin.api.jobs.submissions import Submissions
from gateway_plugin.api.oip.dialect import open_inference
from gateway_plugin.api.openai.rest import OpenAiRest
from gateway_plugin.api.queues.predicting import Predicting
from gateway_plugin.api.queues.rest import QueuesRest
from gateway_plugin.api.tfserving import grpc as tfserving_grpc
from gateway_plugin.api.tfserving.monitoring import RequestCounts
from gateway_plugin.api.tfserving.rest import TfServingRest
from gateway_plugin.api.tfserving.views import ModelStatus
from gateway_plugin.codec.bodies import BodyCodec
from gateway_plugin.codec.offloading import Offloading
from gateway_plugin.hooks.auth import Auth
from gateway_plugin.hooks.dispatcher import Dispatcher
from gateway_plugin.hooks.post import Post
from gateway_plugin.queues.parts import QueueParts
from gateway_plugin.service.acts import JobActs
from gateway_plugin.service.batches import Batches
from gateway_plugin.service.console import Console
from gateway_plugin.service.descriptions import Descriptions
from gateway_plugin.service.ends import Ends
from gateway_plugin.service.files import Files
from gateway_plugin.service.following import Following
from gateway_plugin.service.jobs import Jobs
from gateway_plugin.service.loading import Loading
from gateway_plugin.service.many import ManyJobs
from gateway_plugin.service.manyacts import ManyActs
from gateway_plugin.service.queues import Queues
from gateway_plugin.service.uploads import Uploads
from gateway_plugin.service.waiting import Waiters
from gateway_plugin.settings import GatewaySettings
from gateway_plugin.tables.catalog import Catalog
from gateway_plugin.tables.liveworkers import LiveWorkers
from gateway_plugin.tables.rollouts import RolloutController
from gateway_plugin.upstream.callers import Callers
from gateway_plugin.upstream.grpc import GrpcUpstream
from gateway_plugin.upstream.http import HttpUpstream
from signalbox.bus.client import Bus
from signalbox.bus.disk import Reserve
from signalbox.bus.sharedclock import SharedClock
from signalbox.bus.table import Table
from signalbox.jobs.change import LONGEST_DEADLINE_S
from signalbox.jobs.records import Records
from signalbox.program import health
from signalbox.program.errors import Unavailable
from signalbox.program.tasks import TaskGroup
from signalbox.wire import names
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.modeldocs import Model, Serving
from signalbox.wire.names import Bucket
from signalbox.wire.outbound import Subscription, Webhook
from signalbox.wire.scaling import Host
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker

_STALE: Final = (
    "The table of API keys is not proven current: a key that was revoked might pass. It is once NATS answers in time."
)
_UPLOAD_S: Final = 180.0
"""How long a caller's body may be on its way; a gateway has it whole before it calls."""


class Gateway:
    """Builds the parts and owns them.

    dispatcher: what listeners of hook calls call. keyring: who may call. bodies: what all bodies in flight are taken
    from. methods: those of gRPC, by path. queues: the queue service. predicting: predictions at its addresses.
    """

    def __init__(self, bus: Bus, settings: GatewaySettings, queue_bus: Bus | None = None) -> None:
        self._bus = bus
        self.settings = settings
        self._reserve = Reserve(settings.nats_store, settings.nats_reserve_bytes)
        self._keys = Table(bus, Bucket.KEYS, ApiKey, asks_leader=True)
        self._models = Table(bus, Bucket.MODELS, Model, is_packed=True)
        self._workers = Table(bus, Bucket.WORKERS, Worker)
        self._desired = Table(bus, Bucket.DESIRED, Desired)
        self._hosts = Table(bus, Bucket.HOSTS, Host)
        self._serving = Table(bus, Bucket.SERVING, Serving, is_packed=True)
        self._subscriptions = Table(bus, Bucket.SUBSCRIPTIONS, Subscription)
        self._webhooks = Table(bus, Bucket.WEBHOOKS, Webhook)
        self._rollouts = RolloutController(bus, self._models, self._serving, self._workers)
        records = Records(bus)
        self._clock = SharedClock(bus)
        wall = self._clock.now
        key_counts = KeyCounts()
        self._use = KeyUse(bus, key_counts)
        peppers = tuple(filter(None, (settings.key_pepper, settings.previous_key_pepper)))
        self.keyring = keyring = Keyring(
            self._keys,
            peppers,
            stale_s=settings.stale_keys_s,
            most_failures=settings.max_key_failures,
            counts=key_counts,
            wall=wall,
        )
        self.tokens = tokens = EventTokens(peppers, keyring, wall=wall)
        catalog = Catalog(self._models, self._serving)
        workers = LiveWorkers(self._workers, self._desired, self._hosts)
        self._codec = BodyCodec(settings)
        self._owned = OwnedJobs(bus, records, kept_s=LONGEST_DEADLINE_S + settings.records_kept_s, wall=wall)
        self._descriptions = Descriptions(bus, catalog, workers, wall=wall)
        self._waiters = Waiters(bus, records, recheck_s=settings.recheck_s)
        self._acceptance = Acceptance(
            Submitter(
                bus,
                max_stored_bytes=settings.max_stored_bytes,
                results_kept_s=settings.results_kept_s,
                max_results_bytes=settings.max_results_bytes,
                workers=lambda: workers.present,
                wall=wall,
                queued=lambda: self._clock.queued,
            ),
            QueueAdmission(bus, workers, fair_room=settings.fair_room),
            DelayedAdmission(bus, most=settings.max_delayed, fair_room=settings.fair_room, wall=wall),
            Idempotency(
                bus,
                self._owned,
                request_timeout_s=settings.request_timeout_s,
                wall=wall,
                queued=lambda: self._clock.queued,
                most_keys=settings.max_idempotency_keys,
                kept_s=settings.results_kept_s,
            ),
            instance=bus.instance,
            check=self._check_storing,
        )
        self.bodies = bodies_pool(settings.max_bodies_bytes)
        self._jobs = jobs = Jobs(
            bus,
            settings,
            keyring,
            catalog,
            self._codec,
            self._owned,
            self._acceptance,
            self._waiters,
            self._descriptions,
            tokens,
        )
        self._following = following = Following(
            bus, keyring, self._owned, self._descriptions, most=settings.max_streams, wall=wall
        )
        self._ends = Ends(bus, keyring, self._subscriptions, self._webhooks, following.places)
        for watched in (self._models, self._workers, self._desired, self._hosts):
            watched.on_change(lambda *_: following.table_changed())
        offloading = Offloading(settings.decode_timeout_s)
        status, counts = ModelStatus(catalog, workers), RequestCounts()
        console = Console(bus)
        loading = Loading(console, catalog, workers, longest_s=settings.max_wait_s)
        for table in (self._models, self._serving, self._workers):
            table.on_change(lambda *_: loading.table_changed())
        self.open_inference = open_inference(
            settings,
            catalog,
            workers,
            self._codec,
            jobs,
            loading,
            offloading,
            lambda: self.is_healthy,
        )
        self.methods: dict[str, Method] = {
            **tfserving_grpc.methods(catalog, status, jobs, console, counts, offloading),
            **self.open_inference.grpc.methods(),
        }
        acts = JobActs(bus, records, catalog, self._owned, self._acceptance, wall=wall)
        most, proxies, kept_s = settings.max_body_bytes, settings.trusted_proxies, settings.files_kept_s
        self._files = files = Files(bus, most_bytes=settings.max_files_bytes, wall=wall)
        self._openai = OpenAiRest(
            files,
            Uploads(bus, files, wall=wall),
            Batches(bus, files, kept_s=kept_s, wall=wall),
            kept_s=kept_s,
        )
        serving = TfServingRest(jobs, catalog, self._codec, status, counts, most, is_for_pages=settings.cors)
        self._queue_parts = QueueParts(bus, queue_bus, check=self._check_storing_items, wall=wall)
        self.queues = Queues(self._queue_parts)
        self._queues_rest = QueuesRest(
            self.queues,
            Predicting(jobs, catalog, serving, counts, offloading),
            lambda name: self._models.get(names.token(name)) is not None,
            most,
            settings.max_watches,
        )
        self._dialects = dialects = Dialects(
            serving,
            self.open_inference.rest,
            Hello(),
            self._openai,
            self._queues_rest,
            JobsRest(
                Submissions(
                    jobs, catalog, self._codec, Many(ManyJobs(self._acceptance), self._codec), JobWebhooks(settings)
                ),
                Listing(console),
                Reads(jobs, Results(jobs, offloading, settings.max_upstream_bytes)),
                Events(following, tokens),
                AccountEvents(self._ends),
                Acts(jobs, acts),
                ActsOnMany(jobs, acts, ManyActs(console)),
                most,
            ),
        )
        self.dispatcher = Dispatcher(
            Auth(keyring, tokens, trusted_proxies=proxies).hook,
            Post(keyring, dialects, self.bodies, trusted_proxies=proxies).hook,
            dialects,
            secret=settings.secret,
            apis=frozenset(settings.api_ids),
            orgs=frozenset(settings.org_ids),
        )
        self._limits = KeyLimits()

    @classmethod
    async def start(cls, bus: Bus, settings: GatewaySettings, queue_bus: Bus | None = None) -> Self:
        """Ready to dispatch. Raises :class:`Unavailable` when NATS does not answer.

        queue_bus: to the account of the queue service; None = it is the same account.
        """
        gateway = cls(bus, settings, queue_bus)
        try:
            async with TaskGroup() as group:
                for table in gateway._tables:
                    group.create_task(table.start())
                group.create_task(gateway._queue_parts.start())
                group.create_task(gateway._waiters.start())
                group.create_task(gateway._clock.start())
        except BaseException:
            await gateway.close()
            raise
        gateway._use.start()
        gateway._rollouts.start()
        gateway._following.start()
        gateway._ends.start()
        health.READY.add(gateway)
        return gateway

    def http_upstream(self, *, is_front: bool) -> HttpUpstream:
        """The dialects over HTTP. is_front: callers come to it themselves, and no gateway counts their calls."""
        return HttpUpstream(
            self._dialects,
            self._callers(is_front=is_front),
            self.bodies,
            answer_s=self.settings.longest_call_s + (_UPLOAD_S if is_front else 0),
            uploads=self._openai,
            sockets=self._queues_rest,
        )

    def grpc_upstream(self, *, is_front: bool) -> GrpcUpstream:
        """The dialects over gRPC. is_front: see :meth:`http_upstream`."""
        return GrpcUpstream(
            self.methods,
            self.open_inference.grpc.open_methods(),
            self._callers(is_front=is_front),
            self.bodies,
            self.settings,
            is_healthy=lambda: self.is_healthy,
        )

    def _callers(self, *, is_front: bool) -> Callers:
        charge = self._limits.charge if is_front else None
        return Callers(self.keyring, self.tokens, trusted_proxies=self.settings.trusted_proxies, charge=charge)

    @property
    def _tables(
        self,
    ) -> tuple[
        Table[ApiKey],
        Table[Model],
        Table[Worker],
        Table[Desired],
        Table[Host],
        Table[Serving],
        Table[Subscription],
        Table[Webhook],
    ]:
        return (
            self._keys,
            self._models,
            self._workers,
            self._desired,
            self._hosts,
            self._serving,
            self._subscriptions,
            self._webhooks,
        )

    @property
    def is_healthy(self) -> bool:
        """Whether callers are known and answered now: NATS is connected and the key table is current.

        Also while NATS has no room for jobs, which ``/readyz`` tells of: callers are told so, and results are read.
        """
        return self._bus.is_connected and not self.faults()

    def faults(self) -> list[str]:
        """Why callers cannot be told apart now, see :mod:`signalbox.program.health`; NATS speaks for itself there."""
        return [_STALE] if self._keys.synced_age_s > self.settings.stale_keys_s else []

    def _check_storing(self) -> None:
        """Raises :class:`Unavailable` with cause and mend while NATS has no room for a job, or stores none."""
        self._check_room()
        self._bus.stalls.check("jobs")

    def _check_storing_items(self) -> None:
        """Raises :class:`Unavailable` with cause and mend while NATS has no room for an item, or stores none."""
        self._check_room()
        self._queue_parts.bus.stalls.check("q")

    def _check_room(self) -> None:
        try:
            self._reserve.check()
        except Unavailable:
            REFUSED.labels("disk").inc()
            raise

    def stop_waiting(self) -> None:
        """Answer every waiting caller with 503 and the id of its job; the jobs go on."""
        self._waiters.abandon()

    def end_streams(self) -> None:
        """End the streams of callers that follow jobs, who are to connect to another plugin."""
        self._following.end()
        self._ends.end()

    async def close(self) -> None:
        """Close all parts but the connection. Idempotent."""
        health.READY.remove(self)
        await self._following.close()
        self._ends.close()
        await self._files.close()
        await self._rollouts.close()
        await self._use.close()
        await self._waiters.close()
        await self._jobs.close()
        await self._acceptance.close()
        await self._descriptions.close()
        await self._owned.close()
        await self._codec.close()
        await self._clock.close()
        await self._queue_parts.close()
        for table in self._tables:
            await table.close()
