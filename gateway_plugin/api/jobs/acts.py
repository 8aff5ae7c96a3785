"""Acts of owners on their jobs."""

from typing import Any, Final

from gateway_plugin.admission.keyring import CANCEL, SUBMIT, require_scope
from gateway_plugin.admission.submission import read_options
from gateway_plugin.api.jobs.body import require_empty, require_known
from gateway_plugin.api.jobs.paths import Route
from gateway_plugin.jsonresponses import JOB_ID, JsonResponse, json_response, retry_after
from gateway_plugin.request import Request
from gateway_plugin.service.acts import JobActs
from gateway_plugin.service.jobs import Jobs
from signalbox.front.jsonbody import Bounds, parse
from signalbox.program.errors import InvalidRequest
from signalbox.wire.jobids import JOB_ID as ID
from signalbox.wire.keydocs import ApiKey

_BOUNDS: Final = Bounds(65_536, 1_000)
_CHANGES: Final = ("priority", "deadline_s")
_ASK_AGAIN_S: Final = 1
"""Seconds until a worker has probably erased what a deleted job held."""


class Acts:
    """Acts on jobs."""

    def __init__(self, jobs: Jobs, acts: JobActs) -> None:
        self._jobs = jobs
        self._acts = acts

    async def cancel(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        """200 for a job that has ended by it, 202 for one whose worker is asked to stop."""
        require_scope(key, CANCEL)  # before the body is looked at
        require_empty(request.raw_body)
        found = await self._jobs.cancel(key, route.job_id)
        status = 200 if found.record.state.is_terminal else 202
        doc = await self._jobs.describe(key, found, with_result=False)
        return json_response(status, doc, {JOB_ID: found.record.id})

    async def change(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        """200 with the job as it stands then."""
        require_scope(key, CANCEL)
        fields = _fields(request.raw_body, _CHANGES)
        if not fields:
            raise InvalidRequest(
                'The body must say what changes: {"priority": "hi"}, {"deadline_s": 60} (from now), or both.'
            )
        options = read_options(fields)
        found = await self._acts.change(
            key,
            route.job_id,
            priority=options.priority if "priority" in fields else None,
            deadline_s=options.deadline_s,
        )
        return json_response(200, await self._jobs.describe(key, found), {JOB_ID: found.record.id})

    async def retry(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        """202 with the new job, also where an earlier call has made it."""
        require_scope(key, SUBMIT)
        fields = _fields(request.raw_body, ("after",))
        after = fields.get("after", "")
        if type(after) is not str or (after and ID.match(after) is None):
            raise InvalidRequest('"after" must be the id of the job that this one was run again as.', field="after")
        found = await self._acts.retry(key, route.job_id, after=after)
        job_id = found.record.id
        doc = await self._jobs.describe(key, found, with_result=False)
        wait_s = retry_after(doc["estimated_wait_s"])
        return json_response(202, doc, {JOB_ID: job_id, "Location": f"/v1/jobs/{job_id}", "Retry-After": str(wait_s)})

    async def delete(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        """204 when nothing is left of it, 202 while something is."""
        require_scope(key, CANCEL)
        require_empty(request.raw_body)
        done = await self._acts.delete(key, route.job_id)
        if done.is_gone:
            return JsonResponse(204, b"", {JOB_ID: done.job_id})
        doc = {"id": done.job_id, "state": "being deleted"}
        return json_response(202, doc, {JOB_ID: done.job_id, "Retry-After": str(_ASK_AGAIN_S)})


def _fields(body: bytes, known: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a body, which may be empty. Raises :class:`InvalidRequest` and :class:`TooLarge`."""
    if body.strip() in {b"", b"null"}:
        return {}
    fields = parse(body, _BOUNDS).doc
    require_known(fields, known)
    return dict(fields)
