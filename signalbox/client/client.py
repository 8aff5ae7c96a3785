"""The API client: predict, submit, wait, cancel. Async inside, wrapped once for plain code.

async with Client("http://127.0.0.1:8080", key) as client:
    reply = await client.predict("half_plus_two", instances=[1.0, 2.0, 5.0])

with SyncClient("http://127.0.0.1:8080", key) as client:
    reply = client.predict("half_plus_two", instances=[1.0, 2.0, 5.0])
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

from signalbox.client.pool import ConnectionPool, Response
from signalbox.program import errors

POLL_S: Final = 0.2
"""Pause before a job is asked after again, unless the server says how long (``Retry-After``)."""
LONGEST_POLL_S: Final = 5.0
ENDED: Final = frozenset({"succeeded", "failed", "cancelled", "expired"})


class JobStatus(NamedTuple):
    """A job as the API shows it. document: the whole JSON object, with ``result`` when it succeeded."""

    id: str
    state: str
    position: int | None
    document: Mapping[str, Any]

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended, so that its status changes no more."""
        return self.state in ENDED


class Client:
    """Talks to one front with one API key. connections: most requests in flight."""

    def __init__(self, url: str, key: str, *, connections: int = 16, timeout_s: float = 60.0) -> None:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._pool = ConnectionPool(url, headers=headers, size=connections, timeout_s=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close idle connections. Idempotent."""
        await self._pool.close()

    async def predict(
        self,
        model: str,
        *,
        instances: Sequence[Any] | None = None,
        inputs: Any = None,
        version: int | None = None,
        label: str | None = None,
        signature: str | None = None,
    ) -> dict[str, Any]:
        """Run a model and wait for its answer: ``predictions`` for instances, ``outputs`` for inputs.

        instances: one value per row. inputs: tensors by name, or one tensor. Raises the
        :mod:`signalbox.program.errors` class of the refusal; :class:`~errors.DeadlineExceeded` carries the
        fact ``job_id`` of the job that goes on.
        """
        response = await self._post_prediction(model, _body(instances, inputs, signature), version, label, {})
        return _object(_checked(response))

    async def submit(
        self,
        model: str,
        *,
        instances: Sequence[Any] | None = None,
        inputs: Any = None,
        version: int | None = None,
        label: str | None = None,
        signature: str | None = None,
    ) -> JobStatus:
        """Accept the job durably and return at once. Not idempotent: each call is a job."""
        response = await self._post_prediction(
            model, _body(instances, inputs, signature), version, label, {"Prefer": "respond-async"}
        )
        return _status(_object(_checked(response)))

    async def job(self, job_id: str) -> JobStatus:
        """The job's present status. Raises :class:`~errors.NotFound`, also for another key's job."""
        return _status(_object(_checked(await self._get_job(job_id))))

    async def wait(self, job_id: str, *, timeout_s: float = 300.0) -> JobStatus:
        """The job once it has ended. Raises :class:`~errors.DeadlineExceeded`."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    response = await self._get_job(job_id)
                    if response.status == 410:
                        return JobStatus(job_id, "expired", None, _object(response))
                    status = _status(_object(_checked(response)))
                    if status.has_ended:
                        return status
                    await asyncio.sleep(min(_retry_after(response) or POLL_S, LONGEST_POLL_S))
        except TimeoutError as error:
            raise errors.DeadlineExceeded(f"Job {job_id} did not end in {timeout_s:g} s.", job_id=job_id) from error

    async def cancel(self, job_id: str) -> JobStatus:
        """Ask for the end of a job. Raises :class:`~errors.Conflict` when it has already ended."""
        response = await self._pool.request("DELETE", f"/v1/jobs/{quote(job_id)}")
        return _status(_object(_checked(response)))

    async def models(self) -> dict[str, Any]:
        """The models this key may call."""
        return _object(_checked(await self._pool.request("GET", "/v1/models")))

    async def _get_job(self, job_id: str) -> Response:
        return await self._pool.request("GET", f"/v1/jobs/{quote(job_id)}")

    async def _post_prediction(
        self, model: str, body: bytes, version: int | None, label: str | None, headers: Mapping[str, str]
    ) -> Response:
        path = f"/v1/models/{quote(model, safe='')}"
        if version is not None:
            path += f"/versions/{version}"
        elif label is not None:
            path += f"/labels/{quote(label, safe='')}"
        return await self._pool.request("POST", f"{path}:predict", body, headers)


class SyncClient:
    """The methods of :class:`Client` for code without an event loop. One thread at a time may use it."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 60.0) -> None:
        self._runner = asyncio.Runner()
        self._client = Client(url, key, connections=1, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._runner.run(self._client.close())
        self._runner.close()

    def predict(self, model: str, **arguments: Any) -> dict[str, Any]:
        """Predict and return the result. Arguments and errors: :meth:`Client.predict`."""
        return self._runner.run(self._client.predict(model, **arguments))

    def submit(self, model: str, **arguments: Any) -> JobStatus:
        """Submit a job and return it. Arguments and errors: :meth:`Client.submit`."""
        return self._runner.run(self._client.submit(model, **arguments))

    def job(self, job_id: str) -> JobStatus:
        """Return a job as it is now. Arguments and errors: :meth:`Client.job`."""
        return self._runner.run(self._client.job(job_id))

    def wait(self, job_id: str, *, timeout_s: float = 300.0) -> JobStatus:
        """Wait for a job's end and return it. Arguments and errors: :meth:`Client.wait`."""
        return self._runner.run(self._client.wait(job_id, timeout_s=timeout_s))

    def cancel(self, job_id: str) -> JobStatus:
        """Cancel a job and return it. Arguments and errors: :meth:`Client.cancel`."""
        return self._runner.run(self._client.cancel(job_id))

    def models(self) -> dict[str, Any]:
        """Return the models that the key may use. Arguments and errors: :meth:`Client.models`."""
        return self._runner.run(self._client.models())


def _body(instances: Sequence[Any] | None, inputs: Any, signature: str | None) -> bytes:
    if (instances is None) == (inputs is None):
        raise errors.InvalidRequest("Give either instances or inputs.")
    doc: dict[str, Any] = {"signature_name": signature} if signature else {}
    doc["inputs" if instances is None else "instances"] = inputs if instances is None else instances
    return json.dumps(doc, separators=(",", ":")).encode()


def _checked(response: Response) -> Response:
    """The response, or the error it stands for."""
    if response.status < 400:
        return response
    try:
        doc = json.loads(response.body)
    except ValueError:
        doc = {}
    doc = doc if isinstance(doc, dict) else {}
    message = str(doc.get("detail") or doc.get("error") or f"status {response.status}")
    raise _class_of(response.status, doc.get("code"))(
        message,
        retry_after_s=_retry_after(response),
        status=response.status,
        job_id=response.headers.get("x-signalbox-job-id") or doc.get("job_id"),
    )


def _class_of(status: int, code: object) -> type[errors.SignalboxError]:
    by_code = {kind.code: kind for kind in _kinds(errors.SignalboxError) if not _is_special(kind)}
    if isinstance(code, str) and code in by_code:
        return by_code[code]
    return _BY_STATUS.get(status) or (errors.Unavailable if status >= 500 else errors.InvalidRequest)


_BY_STATUS: Final[Mapping[int, type[errors.SignalboxError]]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    409: errors.Conflict,
    410: errors.Gone,
    413: errors.TooLarge,
    429: errors.LimitExceeded,
    500: errors.Bug,
    504: errors.DeadlineExceeded,
}


def _kinds(root: type[errors.SignalboxError]) -> list[type[errors.SignalboxError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _kinds(child))]


def _is_special(kind: type[errors.SignalboxError]) -> bool:
    """A class whose constructor takes other arguments than the root's."""
    return kind.__init__ is not errors.SignalboxError.__init__


def _object(response: Response) -> dict[str, Any]:
    try:
        doc = json.loads(response.body)
    except ValueError as error:
        raise errors.Bug(f"The front answered {response.status} without JSON.") from error
    if not isinstance(doc, dict):
        raise errors.Bug(f"The front answered {response.status} with no JSON object.")
    return doc


def _status(doc: dict[str, Any]) -> JobStatus:
    return JobStatus(str(doc["id"]), str(doc["state"]), doc.get("position"), doc)


def _retry_after(response: Response) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdigit() else None
