"""Pulls jobs of the models that this worker serves, while the lease is held.

A model *sleeps* until a job of it is announced: nothing of it exists on the server but a subscription. Then it is
*woken*: the consumers of its three classes are found or made, and pull requests wait at them until jobs come or they
expire. When it has had no job for a while it sleeps again.

A delivery that was lost comes again when the consumers are made *anew*: what was delivered before is then delivered
again, and is to be examined. That is done for each model with jobs in ``JOBS`` when this worker begins to follow it and
after a reconnect, and whenever :meth:`JobIntake.redeliver` is called. See :mod:`signalbox.jobs.delivery` and ADR 0210.

A request that waits at a consumer cannot be taken back without loss: a job that it is just being given is gone. So a
worker whose runs are long parks none for models that others serve too, and none are parked any more for a model that
will sleep soon: there jobs are asked for when one is announced.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from signalbox.bus.client import Bus, Delivery, Puller
from signalbox.jobs import delivery
from signalbox.jobs.commits import persist
from signalbox.program import log
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire import names
from signalbox.wire.names import PRIORITIES, Priority, Stream
from signalbox.wire.workerdocs import Worker
from workers.host import gauges
from workers.host.fleet import FleetTables
from workers.host.hints import Hints
from workers.queue.awake import AwakeModel
from workers.queue.openings import Openings
from workers.queue.readturns import ReadTurns

PARKED_S: Final = 5.0
"""How long a pull request stays on the server."""
GLANCE_S: Final = 0.02
"""How long one stays that a hint caused: the server may tell of a job a little before its consumer has it."""
PARKED_AFTER_RECONNECT_S: Final = 0.25
"""The same just after a reconnect: a server that is still starting loses pull requests without an answer."""
STARTING_S: Final = 10.0
SLEEP_S: Final = 30.0
"""A model without a job for so long sleeps."""
HINT_TRIES: Final = 2
"""How often a job that was announced is asked for: others may have it."""
AGAIN_S: Final = 0.5
"""Until consumers are asked for again that could not be had."""
LONG_RUNS_S: Final = 60.0
"""After a long run others are taken to come for so long."""
OPENED_AT_ONCE: Final = 4
"""Models whose consumers are asked for at the same time: the server answers a connection's questions in order, and
whatever else this worker writes, its lease too, waits behind them."""

MANY_AWAKE: Final = 150
"""With more models awake no request is parked, and those queues that are known to hold jobs are read in turn, one
at a time. To find the next job of one the server looks through all that came since it last looked, and stores none
meanwhile: where it does so at each job for each of a thousand models, it does nothing else."""

OnDelivery = Callable[[str, Delivery, bool], None]


class JobIntake:
    """The pullers of one session.

    on_delivery: called with the model, each delivery as it is read, and whether it may have been
    delivered before; must be quick. on_credit: called with a model when jobs of it that were asked for did not come, or
    may be asked for from now on.
    """

    def __init__(
        self,
        bus: Bus,
        fleet: FleetTables,
        on_delivery: OnDelivery,
        on_credit: Callable[[str], None],
    ) -> None:
        self._bus = bus
        self._fleet = fleet
        self._tasks = Background()
        self._on_delivery = on_delivery
        self._on_credit = on_credit
        self._loop = asyncio.get_running_loop()
        self._hints = Hints(bus, self._on_hint, self._redelivery_asked, self._on_anew)
        self._starting_until_s = 0.0
        self._followed: frozenset[str] = frozenset()
        self._awake: dict[str, AwakeModel] = {}
        self._openings = Openings()
        self._announced: set[str] = set()
        """Models of which a job was announced while they slept, or lies in the queue."""
        self._dozing: set[str] = set()
        self._opened_at_once = asyncio.Semaphore(OPENED_AT_ONCE)
        self._turns: ReadTurns[Puller] = ReadTurns()
        self._rest: asyncio.TimerHandle | None = None
        self._leaves_shared = False
        self._long_runs_until_s = -math.inf
        self._is_closed = False

    async def follow(self, models: Iterable[str]) -> None:
        """Take jobs of exactly these models from now on. Raises :class:`Unavailable`; then it may be repeated."""
        wanted = frozenset(models)
        new, gone = wanted - self._followed, self._followed - wanted
        await self._hints.listen(new)  # before the question, so that no job is missed
        self._hints.ignore(gone)
        self._followed = wanted
        await self._leave([model for model in gone if model in self._awake])
        generation = self._fleet.generation()
        for model, awake in self._awake.items():
            if awake.generation != generation:
                self._request_open(model)
        try:
            await self._redeliver_queued(new)
        except BaseException:
            self._followed -= new
            raise

    def is_asking(self, model: str) -> bool:
        """Whether jobs of a model can be asked for."""
        awake = self._awake.get(model)
        return awake is not None and awake.is_open

    def asking(self) -> list[str]:
        """The models of which jobs can be asked for."""
        return [model for model, awake in self._awake.items() if awake.is_open]

    def ask(self, model: str, wanted: int, waiting: Mapping[Priority, int]) -> int:
        """Ask for as many jobs of a model as are missing from ``wanted``. One that sleeps has none.

        Returns how many were asked for and have not come, of the class with the most.
        """
        awake = self._awake.get(model)
        if awake is None or not awake.is_open:
            return 0
        self._announced.discard(model)
        return awake.ask(
            wanted,
            waiting,
            self._turns,
            now_s=self._loop.time(),
            expires_s=self._waits_s(awake),
            is_one_shot=awake.by_hints and not self._is_starting,
            is_held=self._leaves_shared and not self._fleet.is_alone(model),
        )

    def has_waiting(self, model: str) -> bool:
        """Whether a job waits of a model that is awake and not asked for. It is said once of a job."""
        awake = self._awake.get(model)
        is_announced = model in self._announced
        self._announced.discard(model)
        return is_announced or (awake is not None and any(awake.left.values()))

    def doze(self, model: str) -> None:
        """Let a model sleep of which no job waits, until one is announced: it cannot be served now."""
        awake = self._awake.get(model)
        if awake is not None and model not in self._dozing:
            self._dozing.add(model)
            self._tasks.start(self._doze(model, awake), name="let a model sleep")

    async def _doze(self, model: str, awake: AwakeModel) -> None:
        awake.by_hints = True
        awake.hinted.clear()
        try:
            await self._hints.listen([model])  # before the question, so that no job is missed
            infos = await delivery.find_all(self._bus, model, awake.generation)
        finally:
            self._dozing.discard(model)
        if self._awake.get(model) is not awake:
            return
        if awake.hinted or any(info.num_pending for info in infos.values()):
            self._announced.add(model)
            self._on_credit(model)
        else:
            await self._close(self._forget(model))

    def _waits_s(self, awake: AwakeModel) -> float:
        """How long a request waits at the server."""
        if awake.by_hints and self._is_crowded:
            return 0.0
        if self._is_starting:
            return PARKED_AFTER_RECONNECT_S
        return GLANCE_S if awake.by_hints else PARKED_S

    def leave_shared(self) -> None:
        """Ask for no more jobs of models that others serve too: a run here keeps them waiting."""
        self._leaves_shared = True
        for model, awake in self._awake.items():
            if not self._fleet.is_alone(model):
                for priority, puller in awake.pullers.items():
                    if self._turns.withdraw(puller):
                        awake.hinted[priority] = 1

    def take_shared(self) -> None:
        """Ask for jobs of all models again, after :meth:`leave_shared`."""
        self._leaves_shared = False
        self._long_runs_until_s = self._loop.time() + LONG_RUNS_S
        for model, awake in self._awake.items():
            if awake.may_hold:
                self._on_credit(model)

    def redeliver(self, model: str) -> None:
        """Have everything of this model delivered again that has not ended, followed or not."""
        self._request_open(model, is_anew=True)

    def redeliver_followed(self) -> None:
        """Have jobs delivered again of each model that is followed and has a job in ``JOBS``."""
        self._tasks.start(persist(partial(self._redeliver_queued, self._followed)), name="redeliver what is queued")

    def redeliver_lost(self, worker: Worker) -> None:
        """Have the followed jobs of a worker that is gone delivered again, if this worker acts for all."""
        self._tasks.start(persist(partial(self._redeliver_lost, worker)), name="redeliver what a worker had")

    async def give_back(self, models: Iterable[str]) -> None:
        """Have these models' jobs delivered again, now: some were delivered here and will not be ended here."""
        for model in sorted(models):
            await delivery.make_all_anew(self._bus, model, self._fleet.generation())

    async def rest(self) -> None:
        """Let models sleep that have had no job for a while. Raises :class:`Unavailable`."""
        await self._switch_to_hints()
        before = self._loop.time() - SLEEP_S
        for model in [name for name, awake in self._awake.items() if awake.by_hints and awake.used_s < before]:
            infos = await delivery.find_all(self._bus, model, self._fleet.generation())
            awake = self._awake.get(model)
            if awake is None or awake.used_s >= before or awake.outstanding or awake.hinted:
                continue
            if not any(info.num_pending for info in infos.values()):
                await self._close(self._forget(model))

    def reconnected(self) -> None:
        """Note that the connection is back, without what was on its way; the server may still be starting."""
        self._starting_until_s = self._loop.time() + STARTING_S
        self.redeliver_followed()

    async def close(self) -> None:
        """Stop to pull; deliveries that were on their way have been passed on when this returns."""
        self._is_closed = True
        self._turns = ReadTurns()  # whose turn it was is not asked any more
        self._openings.forget()
        await self._tasks.cancel()
        self._hints.close()
        await self._close([puller for model in list(self._awake) for puller in self._forget(model)])

    @property
    def _is_crowded(self) -> bool:
        return len(self._awake) > MANY_AWAKE

    @property
    def _is_starting(self) -> bool:
        return self._loop.time() < self._starting_until_s

    # ------------------------------------------------------------------------------ waking

    def _on_hint(self, model: str, priority: Priority, seq: int = 0) -> None:
        awake = self._awake.get(model)
        if awake is not None:
            awake.hint(priority, seq)
            if awake.by_hints and priority not in awake.hinted:
                awake.hinted[priority] = HINT_TRIES
                self._on_credit(model)
        elif model in self._followed and not self._openings.is_working(model):
            self._announced.add(model)
            self._request_open(model)

    def _redelivery_asked(self, model: str) -> None:
        if model in self._followed and self._fleet.is_first(model):
            self.redeliver(model)

    def _on_anew(self, model: str, priority: Priority, seq: int) -> None:
        if (awake := self._awake.get(model)) is not None:
            awake.delivered_before(priority, seq)
            self._on_hint(model, priority)  # what was let go waits there; if it is not there yet, it refuses

    async def _redeliver_queued(self, models: Iterable[str]) -> None:
        for model in await delivery.queued_models(self._bus, set(models)):
            self.redeliver(model)

    async def _redeliver_lost(self, worker: Worker) -> None:
        queued = await delivery.queued_models(self._bus, self._followed)
        for model in self._fleet.served_too(worker, queued):
            self.redeliver(model)

    def _request_open(self, model: str, *, is_anew: bool = False) -> None:
        if not self._is_closed and self._openings.request(model, is_anew=is_anew):
            self._tasks.start(self._work(model), name="open a queue")

    async def _work(self, model: str) -> None:
        """Open one model's queue as often as is requested."""
        try:
            while (is_anew := self._openings.take(model)) is not None:
                if pause_s := self._openings.pause_s(model):
                    await asyncio.sleep(pause_s)
                try:
                    async with self._opened_at_once:
                        await self._open(model, is_anew=is_anew)
                except SignalboxError as error:
                    log.warning("intake.not_opened", model=model, why=str(error))
                    self._openings.request(model, is_anew=is_anew)
                    await self._doubt(model)
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._openings.end(model)

    async def _open(self, model: str, *, is_anew: bool) -> None:
        generation = self._fleet.generation()
        await self._close(self._forget(model))
        by_hints = model in self._followed and self._is_by_hints(model)
        if by_hints:
            await self._hints.listen([model])  # before the question, so that no job is missed
        # Where no other worker reads the queue, what waits at its consumer is a dead one's.
        if is_anew or self._fleet.is_alone(model):
            gauges.QUEUES_ANEW.labels(model).inc()
            infos = await delivery.make_all_anew(self._bus, model, generation)
        else:
            infos = await delivery.find_all(self._bus, model, generation)
        if self._is_closed or model not in self._followed:
            return
        awake = self._awake[model] = AwakeModel(generation, infos, self._loop.time(), by_hints=by_hints)
        self._turns.is_crowded = self._is_crowded
        if not by_hints:
            self._hints.ignore([model])
        for priority in PRIORITIES:
            puller = self._bus.puller(awake.infos[priority].name, partial(self._deliver, model, awake, priority))
            puller.on_idle = partial(self._idle, model, awake, priority)
            awake.pullers[priority] = puller
        self._on_credit(model)

    def _deliver(self, model: str, awake: AwakeModel, priority: Priority, delivered: Delivery) -> None:
        self._openings.answered(model)
        now_s = self._loop.time()
        is_known = awake.receive(priority, delivered, now_s)
        if self._leaves_shared and not is_known and now_s < awake.parked_until_s and not self._fleet.is_alone(model):
            self.redeliver(model)  # it was asked for before the run was known to be long: let others have it
        if not delivered.left and awake.is_behind(priority):
            self._loop.call_later(GLANCE_S, self._ask_if_behind, model, awake, priority)
        puller = awake.pullers.get(priority)
        awake.hold(priority, (delivered, is_known))
        if puller is not None and self._turns.is_reading(puller):
            if delivered.left and puller.outstanding:
                if self._is_crowded:
                    return
            else:
                self._end_turn(puller)
        self._pass_on(model, awake, priority)

    def _pass_on(self, model: str, awake: AwakeModel, priority: Priority) -> None:
        """What came in a turn."""
        for delivered, is_known in awake.release(priority):
            self._on_delivery(model, delivered, is_known)

    def _end_turn(self, puller: Puller) -> None:
        """Ask the queues whose turn has come for what they hold: one that others have emptied says so at once."""
        self._turns.end(puller, self._loop.time())
        self._begin_turns()

    def _begin_turns(self) -> None:
        """Ask the queues whose turn has come."""
        now_s = self._loop.time()
        while (found := self._turns.next(now_s)) is not None:
            queue, number = found
            queue.ask(number, expires_s=0.0)
        if self._turns.rests_until_s > now_s and self._rest is None:
            self._rest = self._loop.call_at(self._turns.rests_until_s, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self._begin_turns()

    def _idle(self, model: str, awake: AwakeModel, priority: Priority) -> None:
        """Jobs that were asked for did not come: none is there, the consumer has gone, or it does not answer."""
        puller = awake.pullers[priority]
        tries = awake.missed(priority)
        if tries or puller.is_unanswered:
            self._loop.call_later(GLANCE_S, self._ask_again, model, awake, priority, max(1, tries))
        self._end_turn(puller)
        self._pass_on(model, awake, priority)
        if puller.last_refusal:
            awake.is_refused = True
            self._openings.refused(model)
            self._request_open(model)
        elif not puller.is_unanswered:
            self._openings.answered(model)
        elif not self._is_starting:
            self._tasks.start(self._doubt(model), name="doubt a consumer")
        self._on_credit(model)

    def _ask_if_behind(self, model: str, awake: AwakeModel, priority: Priority) -> None:
        if awake.is_behind(priority):
            self._ask_again(model, awake, priority, HINT_TRIES)

    def _ask_again(self, model: str, awake: AwakeModel, priority: Priority, tries: int) -> None:
        """Ask again, as if a job was announced."""
        if self._awake.get(model) is awake and priority not in awake.hinted:
            awake.hinted[priority] = tries
            self._on_credit(model)

    async def _doubt(self, model: str) -> None:
        """Where the stream answers and a consumer of the model does not, its node is cut off: go on with new names."""
        generation = self._fleet.generation()
        try:
            await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
        except SignalboxError:
            return
        asked = (self._bus.consumer_info(names.consumer(model, priority, generation)) for priority in PRIORITIES)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        if any(isinstance(answer, Unavailable) for answer in answers):
            if self._fleet.generation() == generation:
                self._fleet.next_generation()
        elif any(isinstance(answer, SignalboxError) for answer in answers):
            self._request_open(model)

    # ------------------------------------------------------------------------------ hints

    def _is_by_hints(self, model: str) -> bool:
        """Whether jobs of a model are asked for as they are announced, and no requests parked."""
        if self._is_crowded:
            return True
        now_s = self._loop.time()
        if (self._leaves_shared or now_s < self._long_runs_until_s) and not self._fleet.is_alone(model):
            return True
        awake = self._awake.get(model)
        return awake is not None and awake.used_s < now_s - (SLEEP_S - 2 * PARKED_S)

    async def _switch_to_hints(self) -> None:
        """Choose which models go by hints from now on. Ask those of which no job was announced for long."""
        changed = [model for model, awake in self._awake.items() if awake.by_hints != self._is_by_hints(model)]
        if hinted := [model for model in changed if self._is_by_hints(model)]:
            await self._hints.listen(hinted)
        now_s = self._loop.time()
        quiet_s = SLEEP_S / 2 if self._is_crowded else PARKED_S
        for model, awake in self._awake.items():
            if awake.by_hints and not self._is_by_hints(model):
                awake.by_hints = False
                self._hints.ignore([model])
            elif model in hinted:
                awake.by_hints = True
            elif not awake.by_hints or awake.asked_s > now_s - quiet_s:
                continue
            awake.hinted.update(dict.fromkeys(PRIORITIES, 1))
            self._on_credit(model)

    # ------------------------------------------------------------------------------ ending

    async def _leave(self, models: Collection[str]) -> None:
        """Pull these models no more.

        What is lost with the requests that are taken back is delivered again where others serve the model. Whoever
        begins to serve it looks anyway, as this worker does when one that is paused goes on.
        """
        asked = [model for model in models if self._awake[model].outstanding]
        await self._close([puller for model in models for puller in self._forget(model)])
        for model in asked:
            if not self._fleet.is_assigned(model) and not self._fleet.is_alone(model):
                self.redeliver(model)

    def _forget(self, model: str) -> list[Puller]:
        """The pullers of a model that is not pulled any more."""
        awake = self._awake.pop(model, None)
        self._turns.is_crowded = self._is_crowded
        return self._detach(model, awake) if awake is not None else []

    def _detach(self, model: str, awake: AwakeModel) -> list[Puller]:
        pullers = list(awake.pullers.values())
        awake.pullers.clear()
        for puller in pullers:
            puller.on_idle = None
            self._turns.forget(puller)
        for puller in pullers:
            self._end_turn(puller)
        for priority in PRIORITIES:
            self._pass_on(model, awake, priority)
        self._on_credit(model)
        return pullers

    async def _close(self, pullers: Iterable[Puller]) -> None:
        open_ = list(pullers)
        try:
            await asyncio.gather(*(puller.drain() for puller in open_))
        except Unavailable:
            log.debug("intake.closed_without_connection")  # on a connection that is lost
        finally:
            for puller in open_:
                await puller.close()
