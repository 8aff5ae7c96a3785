"""The client for plain code.

with Client("http://127.0.0.1:8080", key) as client:
    y = client.predict("half_plus_two", {"x": numpy.array([1.0, 2.0, 5.0], "float32")})["y"]
"""

import ssl
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Self, Unpack, overload

from numpy.typing import NDArray

from signalbox.client.calls import DEFAULT_GROUP, Calls
from signalbox.client.flight import Flight
from signalbox.client.fronts import REFRESH_S, Balance
from signalbox.client.jobs import Acted, Event, Job, JobFilter, PredictOptions, Priority, Submission, SubmitOptions
from signalbox.client.queues.queue import Queue
from signalbox.client.tensors import Arrays
from signalbox.client.transport import SyncTransport
from signalbox.program.errors import SignalboxError


class Client:
    """Talks to one or several fronts with one API key. Threads may share it.

    urls: of a front, or of several; a name with several addresses stands for as many fronts, and is looked up again
    after ``refresh_s``. balance: whose turn it is, or who has the fewest unanswered requests. A front that fails gets
    nothing for some seconds, and its call goes to the next one, at most ``retries`` times: a prediction, a read, a
    submission with its Idempotency-Key. ``Retry-After`` is obeyed within the call's time. timeout_s: of a call that
    names none, all tries together. connections: most at a time, of all fronts. tls: for other certificates than the
    system's.
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
        self._transport = SyncTransport(urls, key, connections, tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._transport.close()

    @overload
    def predict(self, model: str, inputs: Mapping[str, NDArray[Any]], **options: Unpack[PredictOptions]) -> Arrays: ...

    @overload
    def predict(self, model: str, inputs: Any = None, **options: Unpack[PredictOptions]) -> dict[str, Any]: ...

    def predict(self, model: str, inputs: Any = None, **options: Unpack[PredictOptions]) -> dict[str, Any]:
        """Run a model and wait for its answer.

        inputs: named arrays (``{"x": array}``), which go and come as bytes: the answer is arrays by name. Or lists, by
        name or of a model's one input, or ``instances=`` rows: the answer is TensorFlow Serving's, ``outputs`` or
        ``predictions``. A repeat on another front may run the model twice. Raises the error that the answer stands
        for; :class:`DeadlineExceeded` has the fact ``job_id`` where the job goes on."""
        return self._transport.run(self._calls.predict(model, inputs, options))

    def map(
        self,
        model: str,
        items: Iterable[Any],
        *,
        in_flight: int = 16,
        ordered: bool = True,
        keep_errors: bool = False,
        **options: Unpack[PredictOptions],
    ) -> Generator[tuple[Any, Any], None, None]:
        """Predictions for many inputs, at most ``in_flight`` at a time: pairs of an item and its answer.

        items: each what :meth:`predict` takes; not more are taken than are in flight or wait to be yielded. ordered: as
        the items come, else as answers do. keep_errors: yield errors as answers; else the first ends the iteration."""
        with ThreadPoolExecutor(in_flight, "signalbox-map") as threads:
            call = partial(self.predict, model, **options)
            flight = Flight[Future[Any]](in_flight, is_ordered=ordered)
            source = iter(items)
            try:
                while flight.fill(source, lambda item: threads.submit(call, item)):
                    wait(flight.next_calls, return_when=FIRST_COMPLETED)
                    yield from flight.landed(keep_errors=keep_errors)
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    def submit(self, model: str, inputs: Any = None, **options: Unpack[SubmitOptions]) -> Job:
        """Accept a job durably and return at once. Inputs: as for :meth:`predict`; its :meth:`result` is arrays."""
        return self._transport.run(self._calls.submit(model, inputs, options))

    def submit_many(
        self, jobs: Sequence[Submission], *, idempotency_key: str | None = None
    ) -> list[Job | SignalboxError]:
        """Submit up to 1 000 jobs in one call: for each, in order, the job, or the error why it was refused.

        A job has its id, state and URLs. idempotency_key: of the call (default: a new one, so it may be repeated).
        """
        return self._transport.run(self._calls.submit_many(jobs, idempotency_key))

    def job(self, job: Job | str) -> Job:
        """The job as it is now. Raises :class:`NotFound`, also for another account's job."""
        return self._transport.run(self._calls.job(job))

    def jobs(self, *, limit: int | None = None, **chosen: Unpack[JobFilter]) -> Generator[Job, None, None]:
        """The account's jobs, newest first, page after page. limit: at most so many (default: all).

        Raises :class:`Unavailable` while the console is away, which answers this."""
        return self._transport.iterate(self._calls.jobs(limit, chosen))

    def wait(self, job: Job | str, *, timeout_s: float = 300.0) -> Job:
        """The job once it has ended, however. Raises :class:`DeadlineExceeded`."""
        return self._transport.run(self._calls.wait(job, timeout_s))

    def result(self, job: Job | str, *, timeout_s: float = 300.0) -> Arrays:
        """The outputs by name, once the job has ended: strings as bytes objects, bfloat16 as float32.

        Raises why the job failed (:class:`ModelError` and others), :class:`Cancelled`, :class:`Gone` where it expired,
        :class:`NoLongerKept`, and :class:`DeadlineExceeded`."""
        return self._transport.run(self._calls.result(job, timeout_s))

    def events(self, job: Job | str) -> Generator[Event, None, None]:
        """What becomes of a job, as it does, until it has ended. A broken stream is opened again."""
        return self._transport.iterate(self._calls.events(job))

    def cancel(self, job: Job | str) -> Job:
        """Ask for the end of a job; one that was queued has ended. Raises :class:`Conflict` where it had already."""
        return self._transport.run(self._calls.cancel(job))

    def change(self, job: Job | str, *, priority: Priority | None = None, deadline_s: float | None = None) -> Job:
        """Give a waiting job a higher priority, or a deadline so many seconds from now.

        Raises :class:`Conflict` once a worker has it."""
        return self._transport.run(self._calls.change(job, {"priority": priority, "deadline_s": deadline_s}))

    def retry(self, job: Job | str, *, after: Job | str | None = None) -> Job:
        """The new job that runs the input of one that was given up again; asked twice it is the same one.

        after: the job that it was run again as, to run it once more. Raises :class:`Conflict` where no input is kept.
        """
        return self._transport.run(self._calls.retry(job, after))

    def delete(self, job: Job | str, *, timeout_s: float = 60.0) -> None:
        """Delete an ended job with its input and result; returns once all is gone.

        Raises :class:`Conflict` for one that has not ended (cancel it first), and :class:`DeadlineExceeded`."""
        self._transport.run(self._calls.delete(job, timeout_s))

    def cancel_all(self, jobs: Sequence[Job | str] | None = None, **chosen: Unpack[JobFilter]) -> Acted:
        """Cancel those jobs, or all that the filter finds."""
        return self._transport.run(self._calls.all("cancel", jobs, chosen))

    def delete_all(self, jobs: Sequence[Job | str] | None = None, **chosen: Unpack[JobFilter]) -> Acted:
        """Delete those ended jobs, or all that the filter finds. It returns once that is asked for."""
        return self._transport.run(self._calls.all("delete", jobs, chosen))

    def retry_all(self, jobs: Sequence[Job | str] | None = None, **chosen: Unpack[JobFilter]) -> Acted:
        """Run those jobs' inputs again, or those of all jobs that the filter finds."""
        return self._transport.run(self._calls.all("retry", jobs, chosen))

    def models(self) -> dict[str, Any]:
        """The models that the key may call."""
        return self._transport.run(self._calls.models())

    def metadata(self, model: str) -> dict[str, Any]:
        """What a model takes and gives: ``inputs`` and ``outputs``, each with name, datatype and shape."""
        return self._transport.run(self._calls.metadata(model))

    def queue(self, name: str, *, group: str = DEFAULT_GROUP, uid: str | None = None) -> Queue:
        """A durable queue; nothing is sent yet. group: whose share of its items this consumer gets.

        uid: of the consumer, the same after it was started again (default: a new one). Both are 1 to 64 letters, digits
        and ``_.-``, else :class:`ValueError`."""
        return Queue(self._calls.queue(name, group, uid), self._transport)
