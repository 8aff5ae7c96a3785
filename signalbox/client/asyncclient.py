"""The client for asyncio: :class:`signalbox.client.Client`, awaited."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Self, Unpack, overload

from numpy.typing import NDArray

from signalbox.client.calls import DEFAULT_GROUP, Calls
from signalbox.client.flight import Flight
from signalbox.client.fronts import REFRESH_S, Balance
from signalbox.client.jobs import Acted, Event, Job, JobFilter, PredictOptions, Priority, Submission, SubmitOptions
from signalbox.client.queues.asyncqueue import AsyncQueue
from signalbox.client.tensors import Arrays
from signalbox.client.transport import AsyncTransport
from signalbox.program.errors import SignalboxError


class AsyncClient:
    """Talks to one or several fronts with one API key, in one event loop.

    Arguments, methods and errors are those of :class:`signalbox.client.Client`.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        key: str,
        *,
        timeout_s: float = 60.0,
        retries: int = 3,
        balance: Balance = "round_robin",
        refresh_s: float = REFRESH_S,
        connections: int = 64,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._calls = Calls.to(urls, timeout_s=timeout_s, retries=retries, balance=balance, refresh_s=refresh_s)
        self._transport = AsyncTransport(urls, key, connections, tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._transport.close()

    @overload
    async def predict(
        self, model: str, inputs: Mapping[str, NDArray[Any]], **options: Unpack[PredictOptions]
    ) -> Arrays: ...

    @overload
    async def predict(self, model: str, inputs: Any = None, **options: Unpack[PredictOptions]) -> dict[str, Any]: ...

    async def predict(self, model: str, inputs: Any = None, **options: Unpack[PredictOptions]) -> dict[str, Any]:
        """Run a model and wait for its answer.

        inputs: named arrays (``{"x": array}``), which go and come as bytes: the answer is arrays by name. Or lists, by
        name or of a model's one input, or ``instances=`` rows: the answer is TensorFlow Serving's, ``outputs`` or
        ``predictions``. A repeat on another front may run the model twice. Raises the error that the answer stands
        for; :class:`DeadlineExceeded` has the fact ``job_id`` where the job goes on."""
        return await self._transport.run(self._calls.predict(model, inputs, options))

    async def map(
        self,
        model: str,
        items: Iterable[Any],
        *,
        in_flight: int = 16,
        ordered: bool = True,
        keep_errors: bool = False,
        **options: Unpack[PredictOptions],
    ) -> AsyncGenerator[tuple[Any, Any], None]:
        """Predictions for many inputs, at most ``in_flight`` at a time: pairs of an item and its answer.

        items: each what :meth:`predict` takes; not more are taken than are in flight or wait to be yielded. ordered: as
        the items come, else as answers do. keep_errors: yield errors as answers; else the first ends the iteration."""
        flight = Flight[asyncio.Task[Any]](in_flight, is_ordered=ordered)
        source = iter(items)
        try:
            while flight.fill(source, lambda item: asyncio.create_task(self.predict(model, item, **options))):
                await asyncio.wait(flight.next_calls, return_when=asyncio.FIRST_COMPLETED)
                for landed in flight.landed(keep_errors=keep_errors):
                    yield landed
        finally:
            for task in flight.calls:
                task.cancel()
            await asyncio.gather(*flight.calls, return_exceptions=True)

    async def submit(self, model: str, inputs: Any = None, **options: Unpack[SubmitOptions]) -> Job:
        """Accept a job durably and return at once. Inputs: as for :meth:`predict`; its :meth:`result` is arrays."""
        return await self._transport.run(self._calls.submit(model, inputs, options))

    async def submit_many(
        self, jobs: Sequence[Submission], *, idempotency_key: str | None = None
    ) -> list[Job | SignalboxError]:
        """Submit up to 1 000 jobs in one call: for each, in order, the job, or the error why it was refused.

        A job has its id, state and URLs. idempotency_key: of the call (default: a new one, so it may be repeated)."""
        return await self._transport.run(self._calls.submit_many(jobs, idempotency_key))

    async def job(self, job: Job | str) -> Job:
        """The job as it is now. Raises :class:`NotFound`, also for another account's job."""
        return await self._transport.run(self._calls.job(job))

    def jobs(self, *, limit: int | None = None, **chosen: Unpack[JobFilter]) -> AsyncGenerator[Job, None]:
        """The account's jobs, newest first, page after page. limit: at most so many (default: all).

        Raises :class:`Unavailable` while the console is away, which answers this."""
        return self._transport.iterate(self._calls.jobs(limit, chosen))

    async def wait(self, job: Job | str, *, timeout_s: float = 300.0) -> Job:
        """The job once it has ended, however. Raises :class:`DeadlineExceeded`."""
        return await self._transport.run(self._calls.wait(job, timeout_s))

    async def result(self, job: Job | str, *, timeout_s: float = 300.0) -> Arrays:
        """The outputs by name, once the job has ended: strings as bytes objects, bfloat16 as float32.

        Raises why the job failed (:class:`ModelError` and others), :class:`Cancelled`, :class:`Gone` where it expired,
        :class:`NoLongerKept`, and :class:`DeadlineExceeded`."""
        return await self._transport.run(self._calls.result(job, timeout_s))

    def events(self, job: Job | str) -> AsyncGenerator[Event, None]:
        """What becomes of a job, as it does, until it has ended. A broken stream is opened again."""
        return self._transport.iterate(self._calls.events(job))

    async def cancel(self, job: Job | str) -> Job:
        """Ask for the end of a job; one that was queued has ended. Raises :class:`Conflict` where it had already."""
        return await self._transport.run(self._calls.cancel(job))

    async def change(self, job: Job | str, *, priority: Priority | None = None, deadline_s: float | None = None) -> Job:
        """Give a waiting job a higher priority, or a deadline so many seconds from now.

        Raises :class:`Conflict` once a worker has it."""
        return await self._transport.run(self._calls.change(job, {"priority": priority, "deadline_s": deadline_s}))

    async def retry(self, job: Job | str, *, after: Job | str | None = None) -> Job:
        """The new job that runs the input of one that was given up again; asked twice it is the same one.

        after: the job that it was run again as, to run it once more. Raises :class:`Conflict` where no input is kept.
        """
        return await self._transport.run(self._calls.retry(job, after))

    async def delete(self, job: Job | str, *, timeout_s: float = 60.0) -> None:
        """Delete an ended job with its input and result; returns once all is gone.

        Raises :class:`Conflict` for one that has not ended (cancel it first), and :class:`DeadlineExceeded`."""
        await self._transport.run(self._calls.delete(job, timeout_s))

    async def cancel_all(self, jobs: Sequence[Job | str] | None = None, **chosen: Unpack[JobFilter]) -> Acted:
        """Cancel those jobs, or all that the filter finds."""
        return await self._transport.run(self._calls.all("cancel", jobs, chosen))

    async def delete_all(self, jobs: Sequence[Job | str] | None = None, **chosen: Unpack[JobFilter]) -> Acted:
        """Delete those ended jobs, or all that the filter finds. It returns once that is asked for."""
        return await self._transport.run(self._calls.all("delete", jobs, chosen))

    async def retry_all(self, jobs: Sequence[Job | str] | None = None, **chosen: Unpack[JobFilter]) -> Acted:
        """Run those jobs' inputs again, or those of all jobs that the filter finds."""
        return await self._transport.run(self._calls.all("retry", jobs, chosen))

    async def models(self) -> dict[str, Any]:
        """The models that the key may call."""
        return await self._transport.run(self._calls.models())

    async def metadata(self, model: str) -> dict[str, Any]:
        """What a model takes and gives: ``inputs`` and ``outputs``, each with name, datatype and shape."""
        return await self._transport.run(self._calls.metadata(model))

    def queue(self, name: str, *, group: str = DEFAULT_GROUP, uid: str | None = None) -> AsyncQueue:
        """A durable queue; nothing is sent yet. group: whose share of its items this consumer gets.

        uid: of the consumer, the same after it was started again (default: a new one). Both are 1 to 64 letters, digits
        and ``_.-``, else :class:`ValueError`."""
        return AsyncQueue(self._calls.queue(name, group, uid), self._transport)
