"""The lists that can be had as files: who may, which filters each takes, its columns, and its rows batch by batch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor, authorize
from console.audit import listing as audit
from console.audit import query as audit_query
from console.audit import words
from console.bounds import MOST_LETTERS
from console.exports.streaming import TYPES, Batches, Row, answer
from console.fleet import listing as models
from console.fleet import serving, workers
from console.jobs import listing as jobs
from console.jobs import query as jobs_query
from console.jobs.models import Job
from console.keys import accounts
from console.keys.models import ApiKey
from console.keys.names import names_of
from signalbox.program.errors import InvalidRequest, NotFound

BATCH: Final = 500
_OF_MODELS: Final = frozenset({"jobs", "models"})
"""Lists that show who is limited to some models theirs alone; the others are closed to them."""
Filter = Mapping[str, str]


class Export(NamedTuple):
    """act: the right to see the list. takes: parameters of its filter. batches: of a filter and of the models that the
    reader is limited to; raises for a bad filter at once."""

    act: Act
    takes: tuple[str, ...]
    columns: tuple[str, ...]
    batches: Callable[[Filter, Sequence[str]], Batches]


def download(request: HttpRequest, actor: Actor, file: str, given: Filter) -> StreamingHttpResponse:
    """A list as the file ``<list>.csv`` or ``<list>.jsonl``. given: its filter, as on its page.

    Raises :class:`NotFound`, :class:`Forbidden`, and :class:`InvalidRequest` for a filter that the list does not take.
    """
    name, _, kind = file.rpartition(".")
    export = EXPORTS.get(name)
    if export is None or kind not in TYPES:
        known = ", ".join(f"{one}.csv" for one in EXPORTS)
        raise NotFound(f"There is no list {file[:60]!r}. There are {known}, and each as .jsonl.")
    authorize(actor, export.act, place=None if name in _OF_MODELS else ("list", name))
    if any(len(value) > MOST_LETTERS for value in given.values()):
        raise InvalidRequest(f"A filter has at most {MOST_LETTERS} characters.")
    if unknown := sorted(set(given) - set(export.takes)):
        raise InvalidRequest(f"{unknown[0][:60]}: {name} takes {', '.join(export.takes) or 'no filter'}.")
    return answer(request, name, kind, export.columns, export.batches(given, actor.only_models))


def _audit(given: Filter, _only: Sequence[str]) -> Batches:
    asked = audit_query.parse(given.get("q", ""), timezone.now())

    def read() -> Batches:
        before = 0
        while True:
            page = audit.page(asked, before=before, size=BATCH)
            names = names_of(words.ids(page.entries))
            yield [
                {
                    **{column: getattr(entry, column) for column in _AUDIT if hasattr(entry, column)},
                    "kind": entry.target_kind,
                    "name": names.get(entry.target, ""),
                    "changes": words.in_one_line(entry, names),
                }
                for entry in page.entries
            ]
            if not page.older:
                return
            before = page.older

    return read()


def _jobs(given: Filter, only: Sequence[str]) -> Batches:
    state = given.get("state", "")
    text = f"{given.get('q', '')} state:{state}" if state in jobs_query.STATES else given.get("q", "")
    asked = jobs_query.within(jobs_query.parse(text, timezone.now()), only)

    def read() -> Batches:
        before = ""
        while True:
            page = jobs.page(asked, before=before, size=BATCH)
            names = names_of({one for job in page.jobs for one in (job.account_id, job.key_id) if one})
            yield [_job(job, names) for job in page.jobs]
            if not page.older:
                return
            before = page.older

    return read()


def _job(job: Job, names: Mapping[str, str]) -> Row:
    return {
        **{column: getattr(job, column) for column in _JOBS if hasattr(job, column)},
        "account": names.get(job.account_id, ""),
        "key": names.get(job.key_id, ""),
        "took_s": _seconds(job.created_at, job.finished_at),
    }


def _seconds(since: datetime, until: datetime | None) -> float | None:
    return None if until is None else round((until - since).total_seconds(), 3)


def _keys(_: Filter, _only: Sequence[str]) -> Batches:
    for rows in _by_id(ApiKey.objects.select_related("account")):
        yield [
            {
                **{column: getattr(key, column) for column in _KEYS if column not in {"state", "account"}},
                "state": key.state(),
                "account": key.account.name,
            }
            for key in rows
        ]


def _accounts(_: Filter, _only: Sequence[str]) -> Batches:
    for rows in _by_id(accounts.listed()):
        yield [{column: getattr(account, column) for column in _ACCOUNTS} for account in rows]


def _by_id(rows: QuerySet[Any]) -> Iterator[Sequence[Any]]:
    last = ""
    while found := list(rows.filter(pk__gt=last).order_by("pk")[:BATCH]):
        yield found
        last = found[-1].pk


def _models(given: Filter, only: Sequence[str]) -> Batches:
    asked = {name: given.get(name, "") for name in ("q", "repository", "state")}
    first = models.page(**asked, size=BATCH, only=only)

    def read() -> Batches:
        page = first
        while True:
            yield [
                {
                    "name": model.name,
                    "description": model.description,
                    "state": condition.state,
                    "serves": serving.served(model),
                    "labels": [f"{label.name}={label.version.number}" for label in model.labels.all()],
                    "versions": len(model.versions.all()),
                    "replicas": model.replicas,
                    "repository": model.repository.name if model.repository else "",
                    "updated_at": model.updated_at,
                }
                for model, condition in page.models
            ]
            if not page.after:
                return
            page = models.page(**asked, after=page.after, size=BATCH, only=only)

    return read()


def _workers(_: Filter, _only: Sequence[str]) -> Batches:
    yield [
        {
            "worker": name,
            "state": row.label,
            "host": row.host,
            "gpu": row.gpu,
            "device": row.device,
            "models": [f"{one.model}:{one.version}" for one in row.models],
            "done": row.done,
            "failed": row.failed,
        }
        for name, row in sorted(workers.present().items())
    ]


_AUDIT: Final = (
    "number",
    "at",
    "actor_name",
    "via",
    "address",
    "act",
    "kind",
    "target",
    "name",
    "result",
    "reason",
    "message",
    "changes",
    "before",
    "after",
    "request_id",
    "digest",
)
_JOBS: Final = (
    "id",
    "state",
    "model",
    "version",
    "signature",
    "priority",
    "account_id",
    "account",
    "key_id",
    "key",
    "created_at",
    "claimed_at",
    "finished_at",
    "deadline_at",
    "took_s",
    "attempt",
    "worker",
    "gpu",
    "error_code",
    "error_message",
    "size_in",
    "size_out",
    "tags",
)
_KEYS: Final = (
    "id",
    "name",
    "state",
    "account_id",
    "account",
    "owner",
    "scopes",
    "models_allowed",
    "queues_allowed",
    "networks",
    "rate",
    "per_s",
    "quota",
    "quota_window_s",
    "created_at",
    "created_by",
    "expires_at",
    "last_used_at",
    "revoked_at",
    "revoked_by",
    "revoked_reason",
)
_ACCOUNTS: Final = (
    "id",
    "name",
    "note",
    "active_keys",
    "models_allowed",
    "stored_bytes",
    "waiting",
    "idempotency_keys",
    "result_bytes",
    "queue_bytes",
    "last_used_at",
    "created_at",
    "created_by",
)
_MODELS: Final = (
    "name",
    "description",
    "state",
    "serves",
    "labels",
    "versions",
    "replicas",
    "repository",
    "updated_at",
)
_WORKERS: Final = ("worker", "state", "host", "gpu", "device", "models", "done", "failed")
EXPORTS: Final[dict[str, Export]] = {
    "audit": Export(Act.AUDIT_VIEW, ("q",), _AUDIT, _audit),
    "jobs": Export(Act.JOBS_VIEW, ("q", "state"), _JOBS, _jobs),
    "keys": Export(Act.KEYS_VIEW, (), _KEYS, _keys),
    "accounts": Export(Act.ACCOUNTS_VIEW, (), _ACCOUNTS, _accounts),
    "models": Export(Act.MODELS_VIEW, ("q", "repository", "state"), _MODELS, _models),
    "workers": Export(Act.SYSTEM_VIEW, (), _WORKERS, _workers),
}
"""By the name of the list, which its file has."""
