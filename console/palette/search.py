"""What a text of the palette finds: acts first, then things by name, then views and pages. Bounded, and by rights."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from django.db.models import Q
from django.utils import timezone

from console.accounts import scope
from console.accounts.acts import Act
from console.accounts.rights import Actor, may
from console.catalog.models import ModelVersion, ServedModel
from console.fleet import hosts, workers
from console.fleet.models import DesiredState
from console.jobs import listing, query
from console.keys.models import Account, ApiKey
from console.palette.places import ACTS, PLACES, VERBS, Place, Verb
from console.queues.models import Queue
from console.views import services as views
from signalbox.program.words import counted
from signalbox.wire.access import is_among

MOST_LETTERS: Final = 100
_OF_A_KIND: Final = 6
"""Things of one kind, and of one verb, that are found."""
_MOST: Final = 30
_TOGGLED: Final = {Act.QUEUES_PAUSE: DesiredState.MODEL, Act.WORKERS_DRAIN: DesiredState.WORKER}
_MODEL: Final = re.compile(r"/models/(?!-/)([^/]+)")
_JOB: Final = re.compile(r"/jobs/(?!-/)([^/]+)")
_ID: Final = re.compile(r"[0-9a-f-]{8,36}\Z")
"""Of a job: fewer letters have no index."""


class Item(NamedTuple):
    """One line of the palette. kind: what it is. note: beside its label."""

    kind: str
    label: str
    href: str
    note: str = ""


class Thing(NamedTuple):
    """id: in its address. name: as people call it."""

    id: str
    name: str
    note: str = ""


def find(actor: Actor, text: str) -> list[Item]:
    """At most :data:`_MOST` lines for a text; without one, the views and pages that there are."""
    text = text.strip()[:MOST_LETTERS].casefold()
    found: Iterable[Item] = (*_acts(actor, text), *_things(actor, text), *_views(actor, text), *_pages(actor, text))
    if actor.only_models:
        found = [item for item in found if _is_within(item, actor.only_models)]
    jobs = Item("jobs", f"Search jobs for “{text}”", f"/jobs?{urlencode({'q': text})}")
    offered = [jobs] if text and may(actor, Act.JOBS_VIEW) else []
    return [*islice(dict.fromkeys(found), _MOST), *offered]


def _is_within(item: Item, names: Sequence[str]) -> bool:
    """Whether a line leads to what an operator who is limited to these models may see."""
    path = urlsplit(item.href).path
    if model := _MODEL.match(path):
        return is_among(names, unquote(model[1]))
    if job := _JOB.match(path):
        return not scope.refusal(names, Act.JOBS_VIEW, ("job", job[1]))
    if path.startswith(("/workers", "/repositories")):
        return False
    _, is_about, name = item.href.partition("?name=")
    return item.kind in {"page", "view"} or not is_about or is_among(names, unquote(name))


def _acts(actor: Actor, text: str) -> Iterator[Item]:
    first, _, rest = text.partition(" ")
    if len(first) < 2:
        return
    for verb in VERBS:
        if any(word.startswith(first) for word in verb.words) and may(actor, verb.act, revokes=verb.revokes):
            yield from (_act(verb, thing) for thing in _on(actor, verb, rest.strip()))
    yield from (Item("act", one.label, one.href) for one in _matching(actor, ACTS, text))


def _on(actor: Actor, verb: Verb, text: str) -> list[Thing]:
    """What a verb can be done to: no model is paused twice, no worker drained twice."""
    done = _asked(_TOGGLED[verb.act]) if verb.act in _TOGGLED and verb.kind in {"model", "worker"} else ()
    return [thing for thing in _KINDS[verb.kind](text, actor.only_models) if thing.id not in done]


def _act(verb: Verb, thing: Thing) -> Item:
    return Item("act", verb.label.format(thing.name), verb.href.format(quote(thing.id, safe="")), thing.note)


def _things(actor: Actor, text: str) -> Iterator[Item]:
    if not text:
        return
    for kind, act, href in _SHOWN:
        if may(actor, act):
            yield from (
                Item(kind, one.name, href.format(quote(one.id, safe="")), one.note)
                for one in _KINDS[kind](text, actor.only_models)
            )
    name, colon, number = text.rpartition(":") if ":" in text else text.rpartition(" ")
    if colon and number.isdecimal() and len(number) < 19 and may(actor, Act.MODELS_VIEW):
        rows = ModelVersion.objects.filter(model__name__icontains=name.strip(), model__deleted_at=None, number=number)
        if actor.only_models:
            rows = rows.filter(scope.within(actor.only_models, "model__name"))
        for version in rows.select_related("model").order_by("model__name")[:_OF_A_KIND]:
            href = f"/models/{quote(version.model.name, safe='')}/versions/{version.number}"
            yield Item("version", f"{version.model.name}:{version.number}", href)


def _views(actor: Actor, text: str) -> Iterator[Item]:
    if actor.user is not None:
        for view in views.seen_by(actor.user).filter(name__icontains=text)[: _OF_A_KIND * 2]:
            yield Item("view", view.name, view.href, view.of_list)


def _pages(actor: Actor, text: str) -> Iterator[Item]:
    yield from (Item("page", one.label, one.href) for one in _matching(actor, PLACES, text))


def _matching(actor: Actor, places: Iterable[Place], text: str) -> Iterator[Place]:
    """Places of which each word of the text begins a word."""
    asked = text.split()
    for place in places:
        words = f"{place.label} {place.more}".casefold().split()
        if all(any(word.startswith(one) for word in words) for one in asked) and may(actor, place.act):
            yield place


def _models(text: str, only: Sequence[str]) -> list[Thing]:
    rows = ServedModel.objects.filter(Q(name__icontains=text) | Q(description__icontains=text)).order_by("name")
    rows = rows.filter(scope.within(only, "name")) if only else rows
    return [Thing(*row) for row in rows.values_list("name", "name", "description")[:_OF_A_KIND]]


def _paused(text: str, only: Sequence[str]) -> list[Thing]:
    names = [name for name in _asked(DesiredState.MODEL) if not only or is_among(only, name)]
    return [Thing(name, name, "paused") for name in _named(names, text)]


def _workers(text: str, _: Sequence[str]) -> list[Thing]:
    here = workers.present()
    return [Thing(name, name, here[name].label) for name in _named(here, text)]


def _drained(text: str, _: Sequence[str]) -> list[Thing]:
    return [Thing(name, name, "asked to drain") for name in _named(_asked(DesiredState.WORKER), text)]


def _asked(kind: str) -> set[str]:
    """Names of models that are paused, or of workers that are asked to drain."""
    return set(DesiredState.objects.filter(kind=kind, is_on=True).values_list("name", flat=True)[:1000])


def _named(names: Iterable[str], text: str) -> list[str]:
    return [name for name in sorted(names) if text in name.casefold()][:_OF_A_KIND]


def _hosts(text: str, _: Sequence[str]) -> list[Thing]:
    rows: dict[str, tuple[str, int]] = {}
    for row in workers.present().values():
        key = hosts.id_of(row.host)
        rows[key] = (row.host.split("/")[0], rows.get(key, ("", 0))[1] + 1)
    found = [Thing(key, name, counted(number, "worker")) for key, (name, number) in sorted(rows.items())]
    return [one for one in found if text in one.name.casefold() or text in one.id.casefold()][:_OF_A_KIND]


def _keys(text: str, _: Sequence[str]) -> list[Thing]:
    rows = ApiKey.objects.filter(Q(name__icontains=text) | Q(pk__istartswith=text), revoked_at=None)
    return [Thing(*row) for row in rows.values_list("pk", "name", "pk")[:_OF_A_KIND]]


def _accounts(text: str, _: Sequence[str]) -> list[Thing]:
    rows = Account.objects.filter(Q(name__icontains=text) | Q(pk__istartswith=text), deleted_at=None)
    return [Thing(*row) for row in rows.values_list("pk", "name", "pk")[:_OF_A_KIND]]


def _queues(text: str, _: Sequence[str]) -> list[Thing]:
    rows = Queue.objects.filter(Q(name__icontains=text) | Q(group__icontains=text))
    return [Thing(*row) for row in rows.values_list("name", "name", "account__name")[:_OF_A_KIND]]


def _jobs(text: str, only: Sequence[str]) -> list[Thing]:
    if not _ID.match(text):
        return []
    asked = query.within(query.parse(f"id:{text}", timezone.now()), only)
    page = listing.page(asked, size=_OF_A_KIND)
    return [Thing(job.pk, job.pk, f"{job.model}:{job.version} {job.state}") for job in page.jobs]


_KINDS: Final[dict[str, Callable[[str, Sequence[str]], list[Thing]]]] = {
    "model": _models,
    "paused model": _paused,
    "worker": _workers,
    "drained worker": _drained,
    "host": _hosts,
    "key": _keys,
    "account": _accounts,
    "queue": _queues,
    "job": _jobs,
}
_SHOWN: Final = (
    ("model", Act.MODELS_VIEW, "/models/{}"),
    ("job", Act.JOBS_VIEW, "/jobs/{}"),
    ("key", Act.KEYS_VIEW, "/keys/{}"),
    ("account", Act.ACCOUNTS_VIEW, "/accounts/{}"),
    ("queue", Act.QUEUES_VIEW, "/queues/{}"),
    ("worker", Act.SYSTEM_VIEW, "/workers/{}"),
    ("host", Act.SYSTEM_VIEW, "/workers/-/hosts/{}"),
)
"""Kinds of things, the right to see them, and where they are."""
