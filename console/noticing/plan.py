"""Decides what a listing of a repository means for the versions that are registered. Pure.

A version is whole when its marker file is there; where no marker is agreed on, when all files that SavedModel's names
promise are there and the listing has been equal for a settle time. What has vanished is withdrawn after a grace, unless
so much has vanished at once that the listing itself is in doubt.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from console.noticing import fingerprints
from signalbox.program.words import counted
from signalbox.repositories.entry import Entry
from signalbox.repositories.layouts import MOST_VERSIONS, Found, FoundModel
from signalbox.repositories.version import FoundVersion

Key = tuple[str, int]
"""A model's name and a version's number."""
MOST_SHOWN: Final = 3


class Terms(NamedTuple):
    """What a repository demands of its versions. rules: digest of the list that operations are judged by today."""

    marker: str
    settle_s: float
    grace_s: float
    rules: str


class KnownVersion(NamedTuple):
    """A row. is_final: a worker has loaded the version, or a host has all of its bytes. vanished_at: UNIX time."""

    manifest: str
    rules: str
    is_final: bool = False
    vanished_at: float | None = None
    is_withdrawn: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether the last listing did not have it."""
        return self.is_withdrawn or self.vanished_at is not None


class Known(NamedTuple):
    """What the database has. versions: of this repository, by model. owners: models that are not its own, each with
    whom its versions come from, as a sentence. uploads: versions that the console keeps in this repository. configs: by
    model, which ``config.pbtxt`` was read last. deleted: versions that an operator has deleted, by model. gone: deleted
    models that this repository does not bring back, or not yet."""

    versions: Mapping[str, Mapping[int, KnownVersion]]
    owners: Mapping[str, str]
    uploads: Mapping[str, AbstractSet[int]] = {}
    configs: Mapping[str, str] = {}
    deleted: Mapping[str, AbstractSet[int]] = {}
    gone: Container[str] = ()


class Seen(NamedTuple):
    """Files of a version as a listing had them. since: UNIX time of the first of the listings that had them so."""

    manifest: str
    since: float


class Refusal(NamedTuple):
    """kind: a word for a metric. why: a sentence."""

    kind: str
    why: str


class Step(NamedTuple):
    """Something to do with a version that was found. config: its model's ``config.pbtxt``, where there is one."""

    model: str
    number: int
    version: FoundVersion
    manifest: str
    config: Entry | None = None

    @property
    def key(self) -> Key:
        """Which version it is."""
        return self.model, self.number

    @property
    def path(self) -> str:
        """Its folder below the repository, as it is shown."""
        return self.version.folder or self.model

    @property
    def graph(self) -> Entry:
        """Its ``saved_model.pb``, as a file of the repository."""
        file = self.version.graph
        return Entry(f"{self.version.folder}/{file.path}".lstrip("/"), file.size_bytes, file.etag)

    @property
    def inspected(self) -> tuple[Entry, ...]:
        """The files that are read."""
        return (self.graph, self.config) if self.config is not None else (self.graph,)

    @property
    def stamp(self) -> str:
        """Changes with each file that may be why it is refused."""
        return self.manifest + fingerprints.of_config(self.config)

    def where(self, refusal: Refusal) -> str:
        """The path that a refusal is shown with."""
        return self.config.path if self.config is not None and refusal.kind == "config" else self.path


@dataclass
class Plan:
    """What to do. register: new versions, and those to register again. renew: the manifests alone are written anew.

    judge: operations are judged by today's list. configs: versions of models whose ``config.pbtxt`` has changed.
    restore: their files are back. missing: their files are. withdraw: version to the reason. waiting: how many are not
    whole, or have not settled. refused: by the path below the repository. seen: for the next listing. alarm: why
    nothing is withdrawn, else empty.
    """

    register: list[Step] = field(default_factory=list)
    renew: list[Step] = field(default_factory=list)
    judge: list[Step] = field(default_factory=list)
    configs: list[Step] = field(default_factory=list)
    restore: list[Key] = field(default_factory=list)
    missing: list[Key] = field(default_factory=list)
    withdraw: dict[Key, str] = field(default_factory=dict)
    waiting: int = 0
    refused: dict[str, Refusal] = field(default_factory=dict)
    seen: dict[Key, Seen] = field(default_factory=dict)
    alarm: str = ""


def taken(owner: str) -> Refusal:
    """Why a model is refused whose name another has. owner: the sentence that says who."""
    return Refusal("name", f"{owner} Rename the model in the repository.")


def decide(
    found: Found,
    known: Known,
    seen: Mapping[Key, Seen],
    refused: Mapping[Key, tuple[str, Refusal]],
    terms: Terms,
    *,
    now: float,
    is_accepted: bool = False,
    held: Container[Key] | None = None,
) -> Plan:
    """What a successful listing asks for.

    seen: of the listing before. refused: versions that were refused, with the stamp that they had then.
    is_accepted: an operator has confirmed that much of the repository has vanished. held: versions whose manifests NATS
    has, None = nobody has looked.
    """
    plan = Plan(refused={path: Refusal("layout", why) for path, why in found.refused.items()})
    for name, model in sorted(found.models.items()):
        uploads = known.uploads.get(name, frozenset())
        if owner := known.owners.get(name):
            if model.versions.keys() - uploads:
                plan.refused[name] = taken(owner)
            continue
        if uploads or name in known.gone:  # they are being written, or were deleted
            continue
        for number, version in _undeleted(model, known):
            step = Step(name, number, version, fingerprints.of(version.files), model.config)
            was = seen.get(step.key)
            since = was.since if was is not None and was.manifest == step.manifest else now
            plan.seen[step.key] = Seen(step.manifest, since)
            before = known.versions.get(name, {}).get(number)
            if before is not None and before.manifest == step.manifest:
                _decide_known(plan, step, before, terms, is_lost=held is not None and step.key not in held)
            else:
                _decide_changed(plan, step, before, refused.get(step.key), terms, settled_s=now - since)
        if known.configs.get(name, "") != fingerprints.of_config(model.config):
            _decide_config(plan, model, known, refused)
    plan.alarm = "" if is_accepted else _doubt(found, known)
    for (name, number), row in _missing(found, known):
        if why := _superseded(found.models.get(name), number):
            if not row.is_withdrawn:
                plan.withdraw[name, number] = why
        elif not plan.alarm:
            _decide_missing(plan, (name, number), row, terms, now)
    return plan


def _undeleted(model: FoundModel, known: Known) -> list[tuple[int, FoundVersion]]:
    """The versions that were found, but for those that an operator has deleted: nothing is done with them."""
    if model.name in known.gone:
        return []
    deleted = known.deleted.get(model.name, frozenset())
    return [(number, version) for number, version in sorted(model.versions.items()) if number not in deleted]


def shown(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - MOST_SHOWN
    return ", ".join(names[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _decide_known(plan: Plan, step: Step, row: KnownVersion, terms: Terms, *, is_lost: bool) -> None:
    if row.is_gone:
        plan.restore.append(step.key)
    if row.rules != terms.rules:
        plan.judge.append(step._replace(config=None))
    if is_lost:
        plan.renew.append(step)


def _decide_changed(
    plan: Plan,
    step: Step,
    row: KnownVersion | None,
    refused: tuple[str, Refusal] | None,
    terms: Terms,
    *,
    settled_s: float,
) -> None:
    if not _is_whole(step.version, terms, settled_s):
        plan.waiting += 1
        if step.version.missing and settled_s >= terms.settle_s:
            plan.refused[step.path] = Refusal("incomplete", f"Not all files are there: {shown(step.version.missing)}.")
    elif refused is not None and refused[0] == step.stamp:
        plan.refused[step.where(refused[1])] = refused[1]
    elif row is None or not row.is_final:
        plan.register.append(step)
    elif fingerprints.have_equal_sizes(row.manifest, step.manifest):
        plan.renew.append(step)
        if row.is_gone:
            plan.restore.append(step.key)
    else:
        plan.refused[step.path] = Refusal(
            "changed",
            "Names or sizes of its files have changed since hosts fetched it. They keep the bytes that they have; put"
            " the new files under another number.",
        )


def _decide_config(plan: Plan, model: FoundModel, known: Known, refused: Mapping[Key, tuple[str, Refusal]]) -> None:
    """Of a model that is registered, by the newest of its versions. A new one's registration reads the file as well."""
    number = max(model.versions.keys() & known.versions.get(model.name, {}).keys(), default=None)
    if number is None:
        return
    version = model.versions[number]
    step = Step(model.name, number, version, fingerprints.of(version.files), model.config)
    why = refused.get(step.key)
    if why is not None and why[0] == step.stamp:
        plan.refused[step.where(why[1])] = why[1]
    elif step not in plan.register:
        plan.configs.append(step)


def _is_whole(version: FoundVersion, terms: Terms, settled_s: float) -> bool:
    if version.missing:
        return False
    return version.is_marked if terms.marker else settled_s >= terms.settle_s


def _doubt(found: Found, known: Known) -> str:
    """Why the listing may be wrong as a whole: it is empty, or has less than half of what was there."""
    listed = (rows for name, rows in known.versions.items() if name not in found.unlisted)
    was = sum(not row.is_gone for rows in listed for row in rows.values())
    is_now = sum(len(_undeleted(model, known)) for model in found.models.values())
    if not was or (is_now and 2 * is_now >= was):
        return ""
    return (
        f"The listing has {counted(is_now, 'version')}, and {was} were there: nothing is withdrawn. If that is right,"
        " save the repository's settings."
    )


def _missing(found: Found, known: Known) -> Iterator[tuple[Key, KnownVersion]]:
    for name, rows in known.versions.items():
        model = found.models.get(name)
        for number, row in rows.items():
            if name not in found.unlisted and (model is None or number not in model.versions):
                yield (name, number), row


def _superseded(model: FoundModel | None, number: int) -> str:
    """Why a version that the listing leaves out is served no more, though its files may be there."""
    if model is None or len(model.versions) < MOST_VERSIONS or number > min(model.versions):
        return ""
    return f"A model has at most {MOST_VERSIONS} versions: the newest are served."


def _decide_missing(plan: Plan, key: Key, row: KnownVersion, terms: Terms, now: float) -> None:
    if row.vanished_at is None:
        plan.missing.append(key)
    elif not row.is_withdrawn and now - row.vanished_at >= terms.grace_s:
        plan.withdraw[key] = "Its files are not in the repository any more."
