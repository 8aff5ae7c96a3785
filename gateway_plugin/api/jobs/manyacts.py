"""Acts of owners on many of their jobs: chosen by ids, or by a filter of the list."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gateway_plugin.admission.keyring import CANCEL, READ, SUBMIT, require_scope
from gateway_plugin.api.jobs.body import require_known
from gateway_plugin.api.jobs.listing import query_of
from gateway_plugin.api.jobs.paths import Operation, Route
from gateway_plugin.jsonresponses import JsonResponse, json_response
from gateway_plugin.request import Request
from gateway_plugin.service.acts import JobActs
from gateway_plugin.service.descriptions import instant
from gateway_plugin.service.jobs import Jobs
from gateway_plugin.service.manyacts import MOST, Act, Acted, ManyActs
from signalbox.front.jsonbody import Bounds, parse
from signalbox.program.errors import InvalidRequest
from signalbox.wire.asks import JobQuery, ListedJob
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import State

_BOUNDS: Final = Bounds(131_072, 4_000)
_LONGEST_ID: Final = 64
_OPEN: Final = (State.QUEUED.value, State.RUNNING.value)
_ENDED: Final = tuple(state.value for state in State if state.is_terminal)
_FIELDS: Final = ("ids", "filter", "limit", "cursor")


class _Kind(NamedTuple):
    """An act on many. scope: that it needs. states: of the jobs that a filter without states chooses."""

    act: Act
    scope: str
    states: tuple[str, ...]


class ActsOnMany:
    """Acts on many jobs."""

    def __init__(self, jobs: Jobs, acts: JobActs, many: ManyActs) -> None:
        self._many = many

        async def cancel(key: ApiKey, job_id: str, _listed: ListedJob | None) -> object:
            return await jobs.cancel(key, job_id)

        async def retry(key: ApiKey, job_id: str, _listed: ListedJob | None) -> object:
            return await acts.retry(key, job_id)

        self._kinds: Final[Mapping[Operation, _Kind]] = {
            Operation.CANCEL_MANY: _Kind(cancel, CANCEL, _OPEN),
            Operation.RETRY_MANY: _Kind(retry, SUBMIT, (State.FAILED.value,)),
            Operation.DELETE_MANY: _Kind(acts.begin_deletion, CANCEL, _ENDED),
        }

    async def act(self, request: Request, route: Route, key: ApiKey) -> JsonResponse:
        """200 with how many it was done to, how many it was refused for, and why for the first of them."""
        kind = self._kinds[route.operation]
        require_scope(key, kind.scope)  # before the body is looked at
        fields = parse(request.raw_body, _BOUNDS).doc
        require_known(fields, _FIELDS)
        if ("ids" in fields) == ("filter" in fields):
            raise InvalidRequest(
                'The body must choose jobs, by {"ids": [...]} or by {"filter": {"state": "failed", "tag": "night"}}.'
            )
        if "ids" in fields:
            require_known(fields, ("ids",))
            return _answer(await self._many.by_ids(key, kind.act, _ids(fields["ids"])))
        require_scope(key, READ)
        query, limit = _filter(fields)
        return _answer(
            await self._many.by_filter(key, kind.act, replace(query, states=query.states or kind.states), limit)
        )


def _ids(given: object) -> list[str]:
    if (
        not isinstance(given, list)
        or not 1 <= len(given) <= MOST
        or not all(type(one) is str and len(one) <= _LONGEST_ID for one in given)
    ):
        raise InvalidRequest(f'"ids" must be a list of 1 to {MOST} ids of jobs.', field="ids")
    return given


def _filter(fields: Mapping[str, Any]) -> tuple[JobQuery, int]:
    chosen, limit, cursor = fields["filter"], fields.get("limit", MOST), fields.get("cursor")
    if not isinstance(chosen, dict):
        raise InvalidRequest('"filter" must be an object of what a list takes: {} is all your jobs.', field="filter")
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise InvalidRequest(f'"limit" must be a whole number from 1 to {MOST}.', field="limit")
    if cursor is not None and (type(cursor) is not str or len(cursor) > _LONGEST_ID):
        raise InvalidRequest('"cursor" must be that of the answer before.', field="cursor")
    return replace(query_of(chosen), cursor=cursor or ""), limit


def _answer(acted: Acted) -> JsonResponse:
    doc: dict[str, Any] = {
        "done": acted.done,
        "refused": acted.refused,
        "refusals": [
            {"id": one.job_id, "code": one.error.code, "detail": one.error.public_message} for one in acted.refusals
        ],
        "cursor": acted.cursor or None,
        "as_of": instant(acted.as_of),
    }
    return json_response(200, doc)
