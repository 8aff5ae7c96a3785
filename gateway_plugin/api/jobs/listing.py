"""Lists of jobs, and what chooses jobs: the same for a list as for an act on many."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from gateway_plugin.admission.instants import read_instant
from gateway_plugin.admission.keyring import READ, require_scope
from gateway_plugin.api.jobs.body import require_known
from gateway_plugin.api.jobs.paths import Route
from gateway_plugin.jsonresponses import JsonResponse, json_response
from gateway_plugin.request import Request
from gateway_plugin.service.console import Console
from gateway_plugin.service.descriptions import instant, urls
from signalbox.program.errors import InvalidRequest
from signalbox.wire.asks import JobQuery, ListedJob
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import State
from signalbox.wire.names import MODEL_NAME, MOST_TAGS, TAG

FILTER: Final = ("state", "model", "tag", "error", "since", "until", "sync")
"""What chooses jobs."""
PARAMETERS: Final = (*FILTER, "limit", "cursor")
"""What a list takes."""
MOST_LISTED: Final = 200
_LISTED: Final = 50
_MOST_LETTERS: Final = 200
_MOST_GIVEN: Final = 100
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}\Z")
_STATES: Final = tuple(state.value for state in State)
_SEVERAL: Final = frozenset({"state", "tag"})
"""Parameters that may be given more than once."""


class Listing:
    """Lists the jobs of an account, newest first, as the console knows them."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def list(self, request: Request, _route: Route, key: ApiKey) -> JsonResponse:
        """A page; ``Link`` has the address of the next one."""
        require_scope(key, READ)  # before anything is looked at
        given = parameters_of(request.url)
        page = await self._console.jobs(key, query_of(given, PARAMETERS, "query"))
        doc = {
            "jobs": [_item(job) for job in page.jobs],
            "cursor": page.cursor or None,
            "as_of": instant(page.as_of),
            "looked_until": instant(page.looked_until or None),
        }
        following = urlencode({**given, "cursor": page.cursor}, doseq=True)
        return json_response(200, doc, {"Link": f'</v1/jobs?{following}>; rel="next"'} if page.cursor else {})


def _item(job: ListedJob) -> dict[str, Any]:
    doc: dict[str, Any] = {
        "id": job.id,
        "model": job.model,
        "version": job.version,
        "state": job.state,
        "priority": job.priority,
        "attempt": job.attempt,
        "tags": job.tags,
        "created_at": instant(job.created_at),
        "finished_at": instant(job.finished_at),
        "deadline_at": instant(job.deadline_at),
        "not_before": instant(job.not_before or None),
        "urls": urls(job.id),
    }
    if job.error_code:
        doc["error"] = {"code": job.error_code, "message": job.error_message}
    return doc


def parameters_of(url: str) -> dict[str, Any]:
    """The parameters in a URL's query: a list of each that may be given several times, else a text.

    Raises :class:`InvalidRequest`.
    """
    try:
        found = parse_qs(url.partition("?")[2], keep_blank_values=True, max_num_fields=_MOST_GIVEN)
    except ValueError as error:
        raise InvalidRequest(f"The query has more than {_MOST_GIVEN} parameters.") from error
    require_known(found, PARAMETERS, what="query", one="parameter")
    for name, values in found.items():
        if len(values) > 1 and name not in _SEVERAL:
            raise InvalidRequest(f'"{name}" may be given once.', field=name)
    return {name: values if name in _SEVERAL else values[0] for name, values in found.items()}


def query_of(given: Mapping[str, Any], takes: Collection[str] = FILTER, what: str = "filter") -> JobQuery:
    """What a filter of a body, or :func:`parameters_of` a URL, chooses. takes: the names that it may have.

    Raises :class:`InvalidRequest` with cause and mend.
    """
    require_known(given, takes, what=what, one="parameter")
    states, tags = _several(given, "state"), _several(given, "tag")
    if not set(states) <= set(_STATES):
        raise InvalidRequest(f'"state" must be one of {", ".join(_STATES)}, or several of them.', field="state")
    if len(tags) > MOST_TAGS or not all(map(TAG.match, tags)):
        raise InvalidRequest(f'"tag" must be a tag that jobs can have, or up to {MOST_TAGS} of them.', field="tag")
    model = _text(given, "model")
    if model and not MODEL_NAME.match(model):
        raise InvalidRequest('"model" must be the name of a model.', field="model")
    return JobQuery(
        states=states,
        model=model,
        tags=tags,
        error=_text(given, "error"),
        since=read_instant("since", given["since"]) if "since" in given else 0.0,
        until=read_instant("until", given["until"]) if "until" in given else 0.0,
        with_sync=_is_so(given, "sync"),
        limit=_limit(given),
        cursor=_text(given, "cursor"),
    )


def _several(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The different values of one that may be given several times; texts of states may join them with commas."""
    values = given.get(name, ())
    if isinstance(values, str):
        values = (values,)
    if not isinstance(values, Sequence) or not all(type(value) is str for value in values):
        raise InvalidRequest(f'"{name}" must be a string, or a list of strings.', field=name)
    if name == "state":
        values = [part for value in values for part in value.split(",")]
    return tuple(dict.fromkeys(values))


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    if type(value) is not str or len(value) > _MOST_LETTERS or not value.isprintable():
        raise InvalidRequest(f'"{name}" must be a string of at most {_MOST_LETTERS} printable characters.', field=name)
    return value


def _is_so(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if type(value) is bool:
        return value
    if value not in ("true", "false"):
        raise InvalidRequest(f'"{name}" must be true or false.', field=name)
    return bool(value == "true")


def _limit(given: Mapping[str, Any]) -> int:
    value = given.get("limit", str(_LISTED))
    if type(value) is not str or not _NUMBER.match(value) or int(value) > MOST_LISTED:
        raise InvalidRequest(f'"limit" must be a whole number from 1 to {MOST_LISTED}.', field="limit")
    return int(value)
