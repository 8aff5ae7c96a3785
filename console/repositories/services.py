"""Acts on repositories: where models come from, and who may call what is found there.

What lies there is found by the controller; nothing here opens a folder or a bucket.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor, system_actor
from console.audit.acts import Target, act
from console.catalog import modelsettings, publishing
from console.catalog.models import ServedModel
from console.catalog.tombstones import due_before, undo_until, was_deleted
from console.config import UPLOADS
from console.database import one_of
from console.keys.models import Account
from console.repositories.models import Listing, Repository
from signalbox.program.errors import Conflict, InvalidRequest, Misconfigured
from signalbox.repositories.location import MOST_REPOSITORY_LETTERS, SCHEMES, Location

MOST_ACCOUNTS: Final = 200
"""That one repository names: each of its models' documents has all of them."""
MOST_NAME: Final = 50
MOST_DESCRIPTION: Final = 300
MOST_S: Final = 365 * 86_400.0
"""Of settling and of grace."""
DEFAULTS: Final = tuple(name for name in modelsettings.SETTINGS if name != "description")
"""Settings that a repository gives to new models."""
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MOST_NAME - 1}}}\Z")
_MARKER: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")
_SERVED: Final = Count("models", filter=Q(models__deleted_at=None))


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What counts for a repository: :class:`Repository` says what each field means. accounts: their ids."""

    url: str
    description: str = ""
    is_noticed: bool = True
    access: str = Repository.PRIVATE
    accounts: Sequence[str] = ()
    defaults: dict[str, Any] = {}
    marker: str = ""
    settle_s: float = 20.0
    grace_s: float = 3600.0


def find(name: str) -> Repository:
    """The repository called ``name``. Raises :class:`NotFound`."""
    return one_of(listed().filter(name=name), f"There is no repository {name!r}.")


def listed() -> QuerySet[Repository]:
    """All repositories by name, with their last listing and ``served``: how many models each has brought."""
    return Repository.objects.select_related("listing").annotate(served=_SERVED).order_by("name")


def add(actor: Actor, name: str, terms: Terms) -> Repository:
    """A new repository, which the controller lists from now on.

    Raises :class:`InvalidRequest` naming the field, and :class:`Conflict` where the name or the place is taken.
    """
    asked = msgspec.to_builtins(terms)
    with act(actor, Act.REPOSITORIES_MANAGE, Target("repository", name), asked=asked) as noted:
        _check_name(name)
        if Repository.objects.filter(name=name).exists():
            raise Conflict(f"name: there is a repository {name} already; change it, or take another name.")
        old = Repository.with_deleted.select_for_update().filter(name=name).first()
        made = Repository(pk=_begun_anew(old) if old is not None else None, name=name, added_by=actor.name)
        _fill(made, _checked(terms, name), actor)
        made.save()
        noted.after = msgspec.to_builtins(terms_of(made))
    return find(name)


def change(actor: Actor, name: str, changes: dict[str, Any], *, reason: str = "") -> Repository:
    """Change some of a repository's terms; a change of who may call its models publishes all of them.

    Its URL stays while it has models: their versions lie below it. Raises :class:`NotFound`, :class:`Conflict`, and
    :class:`InvalidRequest` naming the field.
    """
    with act(actor, Act.REPOSITORIES_MANAGE, Target("repository", name), asked=changes, reason=reason) as noted:
        repository = _locked(name)
        before, granted = terms_of(repository), repository.grant
        was = noted.before = msgspec.to_builtins(before)
        after = _checked(msgspec.structs.replace(before, **changes), name, was=before.url)
        if after.url != before.url:
            _require_movable(repository)
        _fill(repository, after, actor)
        repository.save()
        now = msgspec.to_builtins(after)
        noted.before = {field: was[field] for field in was if was[field] != now[field]}
        noted.after = {field: now[field] for field in noted.before}
        if repository.grant != granted:
            noted.after["models_published"] = publishing.publish_all(repository)
    return find(name)


def terms_of(repository: Repository) -> Terms:
    """What counts for it now."""
    fields = {field: getattr(repository, field) for field in Terms.__struct_fields__ if field != "accounts"}
    return Terms(**fields, accounts=list(repository.access_accounts))


def shown(repository: Repository) -> dict[str, Any]:
    """Its terms, for the audit."""
    terms: dict[str, Any] = msgspec.to_builtins(terms_of(repository))
    return terms


def sync_roots() -> None:
    """A row for ``uploads`` and each named folder, at the place that the settings say. Idempotent; for ``bootstrap``.

    None is noticed until an operator says so: people register models from them. ``uploads`` is open, the others are
    private. What operators change of them stays. Raises :class:`Misconfigured` where an operator's repository has such
    a name.
    """
    actor = system_actor("bootstrap")
    places = {name: Location.parse(f"file://{folder}") for name, folder in settings.CONSOLE.roots.items()}
    for name, place in (places | {UPLOADS: settings.CONSOLE.uploads}).items():
        url = place.url
        known = Repository.with_deleted.filter(name=name).first()
        if known is not None and known.added_by != actor.name:
            raise Misconfigured(
                f"SIGNALBOX_CONSOLE_REPOSITORY_ROOTS: {name} is a repository that {known.added_by} added, at"
                f" {known.url}. Give {url} another name."
            )
        if known is None:
            access = Repository.EVERYBODY if name == UPLOADS else Repository.PRIVATE
            Repository.objects.create(
                name=name, url=url, access=access, is_noticed=False, added_by=actor.name, changed_by=actor.name
            )
        elif known.url != url:
            Repository.objects.filter(pk=known.pk).update(url=url, updated_at=timezone.now())


def _locked(name: str) -> Repository:
    return one_of(Repository.objects.select_for_update().filter(name=name), f"There is no repository {name!r}.")


def _begun_anew(old: Repository) -> int:
    """Free the name of a deleted repository, and of its models; its key, for the new one.

    Raises :class:`Conflict` while the deletion can be undone.
    """
    if timezone.now() < (until := undo_until(old)):
        raise Conflict(
            f"name: {was_deleted(old)} It can be taken again from {until:%Y-%m-%d %H:%M:%S} UTC on. Undo the deletion,"
            " or take another name."
        )
    Listing.objects.filter(repository=old).delete()
    ServedModel.with_deleted.filter(repository=old).update(repository=None)
    return old.pk


def _fill(repository: Repository, terms: Terms, actor: Actor) -> None:
    for field in Terms.__struct_fields__:
        setattr(repository, "access_accounts" if field == "accounts" else field, getattr(terms, field))
    repository.changed_by, repository.updated_at = actor.name, timezone.now()


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise InvalidRequest(
            f"name: letters, digits, '.', '_' or '-', begins with a letter or digit, at most {MOST_NAME} characters."
        )
    if name in SCHEMES:
        raise InvalidRequest(f"name: {name} is the beginning of a URL; take another one.")


def _checked(terms: Terms, name: str, *, was: str = "") -> Terms:
    """The terms as they are kept. was: a URL that need not be judged again. Raises :class:`InvalidRequest`."""
    if len(terms.description) > MOST_DESCRIPTION:
        raise InvalidRequest(f"description: at most {MOST_DESCRIPTION} characters.")
    if terms.marker and (not _MARKER.match(terms.marker) or terms.marker in {".", ".."}):
        raise InvalidRequest("marker: the name of one file, of letters, digits, '.', '_' and '-', at most 100.")
    for field in ("settle_s", "grace_s"):
        value = getattr(terms, field)
        if not (math.isfinite(value) and 0 <= value <= MOST_S):
            raise InvalidRequest(f"{field}: 0 to {MOST_S:.0f} seconds.")
    url = terms.url if terms.url == was else _checked_url(terms.url, name)
    accounts = _checked_accounts(terms.access, terms.accounts)
    return msgspec.structs.replace(
        terms,
        url=url,
        description=terms.description.strip(),
        accounts=accounts,
        defaults=_checked_defaults(terms.defaults),
    )


def _checked_url(url: str, name: str) -> str:
    allowed = allowed_urls()
    if len(url) > MOST_REPOSITORY_LETTERS:
        raise InvalidRequest(f"url: a repository's has at most {MOST_REPOSITORY_LETTERS} letters.")
    try:
        location = Location.parse(url.strip())
        is_allowed = _real(location).is_within(allowed)
    except InvalidRequest as error:
        raise InvalidRequest(f"url: {error.public_message}") from error
    if not is_allowed:
        raise InvalidRequest(
            f"url: {location.url} is outside the places that this console may use: {', '.join(allowed)}. They are"
            " SIGNALBOX_CONSOLE_REPOSITORY_URLS, a deployer's setting."
        )
    require_apart(location.url, name)
    return location.url


def require_apart(url: str, name: str) -> None:
    """Raise :class:`Conflict` where a place and another repository's lie one in the other. name: whose place it is."""
    location = Location.parse(url)
    for other in Repository.objects.exclude(name=name):
        if location.is_within([other.url]) or Location.parse(other.url).is_within([location.url]):
            raise Conflict(f"url: it and {other.url} of the repository {other.name} lie one in the other.")


def allowed_urls() -> list[str]:
    """Where a repository that is added may lie, as URLs that it lies below."""
    console = settings.CONSOLE
    urls = console.repository_urls or [f"file://{folder}" for folder in console.allowed_folders] or ["file://"]
    return [url if url.endswith("://") else _real(Location.parse(url)).url for url in urls]


def _real(location: Location) -> Location:
    """What a folder's links lead to counts, as for a folder that a person registers."""
    return Location.parse(f"file://{location.folder.resolve()}") if location.is_local else location


def _checked_accounts(access: str, accounts: Sequence[str]) -> list[str]:
    if access not in dict(Repository.ACCESS):
        raise InvalidRequest(f"access: one of {', '.join(dict(Repository.ACCESS))}.")
    if (access == Repository.ACCOUNTS) != bool(accounts):
        raise InvalidRequest(
            "accounts: name one or more, or choose another access."
            if access == Repository.ACCOUNTS
            else f"accounts: they are for access {Repository.ACCOUNTS} alone."
        )
    if len(set(accounts)) < len(accounts) or len(accounts) > MOST_ACCOUNTS:
        raise InvalidRequest(f"accounts: name each once, at most {MOST_ACCOUNTS}.")
    there = set(Account.objects.filter(pk__in=accounts).values_list("pk", flat=True))
    if missing := [one for one in accounts if one not in there]:
        raise InvalidRequest(f"accounts: there is no {missing[0][:60]!r}. Give the account's id.")
    return list(accounts)


def _checked_defaults(defaults: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(defaults) - set(DEFAULTS)):
        raise InvalidRequest(f"defaults: there is no setting {unknown[0][:60]!r}. Known: {', '.join(DEFAULTS)}.")
    try:
        return modelsettings.checked_settings(defaults)
    except InvalidRequest as error:
        raise InvalidRequest(f"defaults: {error.public_message}") from error


def _require_movable(repository: Repository) -> None:
    there = Q(deleted_at=None) | Q(deleted_at__gt=due_before())
    if ServedModel.with_deleted.filter(there, repository=repository).exists():
        raise Conflict(
            f"url: {repository.name} has models, whose versions lie below {repository.url}. Add another repository for"
            " the new place."
        )
