"""What may serve: models, versions, labels."""

from typing import Any, Final

import msgspec
from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from console.catalog import policy
from console.catalog.warmups import warm_ups
from console.config import UPLOADS
from console.repositories.models import Kept, Repository
from signalbox.repositories.triton import TritonConfig
from signalbox.wire import manifests, modeldocs
from signalbox.wire.scaling import Scaling
from signalbox.wire.signatures import refusal
from signalbox.wire.splits import TOLERANCE, Split
from signalbox.wire.warmups import WarmUp

REPOSITORY: Final = "repository"
UPLOAD: Final = "upload"
"""Sources of versions: a repository brought it, or an archive did. The others were registered by a ``path``."""


def _real(kept: str) -> str:
    path: str = settings.CONSOLE.real_path(kept)
    return path


class ServedModel(models.Model):
    """A model by name. Its base folder holds ``<version>/saved_model.pb``, as in TensorFlow Serving.

    repository: the one that brought it and alone adds versions to it; None = people did. policy: which versions are
    served (:mod:`console.catalog.policy`), beside the default one, where that is chosen, and those with a label.
    published: the versions of the last publication. retiring: those of them that are selected no more, by number, and
    since when (UTC seconds): they are served until no accepted job needs them (:mod:`console.controller.retiring`).
    imported: what the last configuration of TensorFlow Serving said of it (:mod:`console.catalog.imports`), if any has.
    deleted_at: as of a version; its versions were marked at the same instant. ``objects`` has no row that is marked,
    ``with_deleted`` has all. disabled_by: who disabled it; what a key did (``key:<id>``) a key may undo.
    """

    name = models.CharField(max_length=100, unique=True)
    repository = models.ForeignKey(Repository, on_delete=models.PROTECT, null=True, blank=True, related_name="models")
    description = models.CharField(max_length=300, blank=True)
    base_path = models.CharField(max_length=1000)
    is_enabled = models.BooleanField(default=True)
    disabled_by = models.CharField(max_length=150, blank=True, default="")
    replicas = models.PositiveIntegerField(
        default=1,
        validators=[MaxValueValidator(1000)],
        help_text="GPUs it shall be resident on. 0: requests are refused with the reason.",
    )
    autoscale = models.BooleanField(
        default=False, help_text="Replicas follow the load; 0 that an operator has set stays."
    )
    autoscale_min = models.PositiveIntegerField(
        default=1,
        validators=[MaxValueValidator(1000)],
        help_text="0: no worker is kept for it while nobody calls it.",
    )
    autoscale_max = models.PositiveIntegerField(
        default=1, validators=[MinValueValidator(1), MaxValueValidator(1000)], help_text="Most replicas."
    )
    queue_backlog = models.FloatField(
        default=10.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(1_000_000.0)],
        help_text="Waiting jobs for each replica. 0: not looked at.",
    )
    target_wait_s = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(86_400.0)],
        help_text="Longest that the oldest job shall wait, in seconds. 0: not looked at.",
    )
    scale_tolerance = models.FloatField(
        default=0.1,
        validators=[MinValueValidator(0.0), MaxValueValidator(0.9)],
        help_text="Part of a target by which it may be missed without a change.",
    )
    scale_up_window_s = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(3600.0)],
        help_text="More replicas come once they were needed all through these seconds.",
    )
    scale_down_window_s = models.FloatField(
        default=300.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(3600.0)],
        help_text="Replicas go once they were not needed all through these seconds.",
    )
    scale_to_zero_grace_s = models.FloatField(
        default=600.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(86_400.0)],
        help_text="Seconds without a job until no worker is kept for it, where the least is 0.",
    )
    scale_up_activation = models.PositiveIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(1000)],
        help_text="Replicas that its first job brings.",
    )
    default_version = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty: the highest version.")
    policy = models.JSONField(default=policy.everything)
    published = models.JSONField(default=list, blank=True)
    retiring = models.JSONField(default=dict, blank=True)
    imported = models.JSONField(default=dict, blank=True)
    rows_independent = models.BooleanField(
        default=False,
        help_text="Only if the answer to each row depends on that row alone. Unset: each request runs alone.",
    )
    max_batch_size = models.PositiveIntegerField(
        default=32,
        validators=[MinValueValidator(1), MaxValueValidator(65536)],
        help_text="Rows in one run, where requests are joined.",
    )
    max_batch_delay_ms = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(60_000.0)],
        help_text="Longest a job waits for company, in milliseconds.",
    )
    max_delivery = models.PositiveIntegerField(
        default=5,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="Attempts before a job is a dead letter.",
    )
    timeout_s = models.FloatField(
        default=60.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(86_400.0)],
        help_text="Longest one run may take, in seconds.",
    )
    deadline_s = models.FloatField(
        default=900.0,
        validators=[MinValueValidator(1.0), MaxValueValidator(604_800.0)],
        help_text="Longest a job may wait before it runs, in seconds.",
    )
    sync_wait_s = models.FloatField(
        default=30.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(300.0)],
        help_text="How long a synchronous caller is kept, in seconds.",
    )
    max_queue = models.PositiveIntegerField(
        default=10_000,
        validators=[MinValueValidator(1), MaxValueValidator(1_000_000)],
        help_text="Waiting jobs above which new ones get 429.",
    )
    max_payload_bytes = models.PositiveBigIntegerField(
        default=64 * 1024 * 1024,
        validators=[MinValueValidator(1024)],
        help_text="Largest inputs of one job, decoded, in bytes.",
    )
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True, blank=True)
    deleted_by = models.CharField(max_length=150, blank=True, default="")

    objects = Kept["ServedModel"]()
    with_deleted: models.Manager["ServedModel"] = models.Manager()

    class Meta:
        """By name."""

        default_permissions = ()
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def scaling(self) -> Scaling:
        """How its replicas follow its load."""
        return Scaling(
            is_on=self.autoscale,
            min=self.autoscale_min,
            max=self.autoscale_max,
            backlog=self.queue_backlog,
            target_wait_s=self.target_wait_s,
            tolerance=self.scale_tolerance,
            up_window_s=self.scale_up_window_s,
            down_window_s=self.scale_down_window_s,
            zero_grace_s=self.scale_to_zero_grace_s,
            activation=self.scale_up_activation,
        )

    @property
    def base_folder(self) -> str:
        """The base folder as an absolute path."""
        return _real(self.base_path)

    @property
    def serving_version(self) -> int | None:
        """What a request without a version gets; None while there is no version."""
        if self.default_version is not None:
            return self.default_version
        return max((version.number for version in self.selected()), default=None)

    def selected(self) -> "list[ModelVersion]":
        """The versions that shall be served, the lowest first: those that may serve and that the policy selects, or the
        default or a label names, and candidates. Of many models, prefetch ``versions``, ``labels`` and ``splits``.
        """
        able = [version for version in self.versions.all() if version.may_serve]
        ready = {one.number: one.first_ready_at is not None for one in able}
        candidates = {split.candidate for split in self.splits.all()}
        chosen = {self.default_version, *candidates, *policy.selected(self.policy, ready)}
        labelled = {label.version_id for label in self.labels.all()}
        found = (one for one in able if one.number in chosen or one.pk in labelled)
        return sorted(found, key=lambda version: version.number)

    def served(self) -> "list[ModelVersion]":
        """The versions that are published, the lowest first: beside the selected ones those that retire."""
        found = {version.number: version for version in self.selected()}
        for version in self.versions.all() if self.retiring else ():
            if str(version.number) in self.retiring and version.may_serve:
                found[version.number] = version
        return [found[number] for number in sorted(found)]

    def unserved(self) -> dict[int, str]:
        """Why the other versions are not served, by number; of those that retire, why they will not be."""
        selected = {version.number for version in self.selected()}
        return {one.number: self._why_unserved(one) for one in self.versions.all() if one.number not in selected}

    def note_published(self, now: float) -> None:
        """Note which versions are to be published now, and since when some of them retire. now: UTC seconds."""
        selected = {version.number for version in self.selected()}
        able = {version.number for version in self.versions.all() if version.may_serve}
        left = sorted((set(self.published) & able) - selected)
        self.retiring = {str(number): self.retiring.get(str(number), now) for number in left}
        self.published = sorted({*selected, *left})

    def _why_unserved(self, version: "ModelVersion") -> str:
        if version.is_withdrawn:
            return "its repository does not have it any more"
        if not version.is_approved:
            return "its operations wait for approval"
        why = policy.why_not(self.policy)
        return f"{why}; it leaves once no accepted job needs it" if str(version.number) in self.retiring else why

    @property
    def warm_ups(self) -> tuple[WarmUp, ...]:
        """What workers run after a load, as the ``config.pbtxt`` says that its repository has."""
        kept = getattr(self, "config", None)
        if self.repository is None or kept is None:
            return ()
        return warm_ups(msgspec.convert(kept.content, TritonConfig)).taken

    def document(self) -> modeldocs.Model:
        """What is published of this model. Of many, select ``repository`` and ``config``, prefetch ``versions``,
        ``splits`` and ``labels__version``."""
        served = self.served()
        return modeldocs.Model(
            name=self.name,
            is_enabled=self.is_enabled,
            versions=tuple(version.document() for version in served),
            default_version=self.serving_version,
            labels={label.name: label.version.number for label in self.labels.all()},
            replicas=self.replicas,
            batching=modeldocs.Batching(
                max_size=self.max_batch_size,
                max_delay_ms=self.max_batch_delay_ms,
                rows_independent=self.rows_independent,
            ),
            limits=msgspec.convert(self, modeldocs.Limits, from_attributes=True),
            access=self.repository.grant if self.repository is not None else modeldocs.Access(),
            warm_ups=self.warm_ups,
            splits=self._split_documents({version.number for version in served}),
            updated_at=self.updated_at.timestamp(),
        )

    def _split_documents(self, served: set[int]) -> tuple[Split, ...]:
        return tuple(one.document() for one in self.splits.all() if one.candidate in served)


class ModelConfig(models.Model):
    """What the ``config.pbtxt`` says that lies with a model of Triton's (:mod:`console.catalog.triton`).

    file: fingerprint of it as it was listed. content: :class:`signalbox.repositories.triton.TritonConfig`.
    """

    model = models.OneToOneField(ServedModel, on_delete=models.CASCADE, related_name="config", primary_key=True)
    file = models.CharField(max_length=64)
    content = models.JSONField()

    class Meta:
        """One row for each such model."""

        default_permissions = ()

    def __str__(self) -> str:
        return f"configuration of {self.model_id}"


class ModelVersion(models.Model):
    """One version: immutable once a worker has had it ready. path: as ``ConsoleSettings.kept_path`` names its folder,
    or that folder's URL, of an object store. digest: empty until a host has had all bytes, where a repository brought
    it. vanished_at: since when its files are missing there. is_withdrawn: that was too long, or newer ones took its
    place: it is not served. manifest: fingerprint of the files that it was registered with there
    (:mod:`console.noticing.fingerprints`).

    signatures: as the inspector found them; TensorFlow's own begin with two underscores.

    unknown_ops: operations that the list does not have. listed_ops: those and all others that need approval, and why.
    approved_by: the operator who approved, never the one who added the version; empty = not approved.
    rules: digest of the list that it was judged by last. raised_ops: operations of a serving version that need approval
    by that list and do not have it. first_ready_at: when a worker was first seen to have it in memory, as the
    controller notes it (:mod:`console.controller.readiness`); None = it never loaded. joining: what a worker has found
    of joined requests, with the digest of the files that it tried, who and when; none where nobody has tried.

    deleted_at: the row is a tombstone: the version is in no document, list or page, and its number never serves other
    bytes (:mod:`console.deletion`). path: empty where the files of such a one are gone. ``objects`` and
    ``ServedModel.versions`` have no tombstones, ``with_deleted`` has all rows.
    """

    model = models.ForeignKey(ServedModel, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveBigIntegerField()
    path = models.CharField(max_length=1000)
    digest = models.CharField(max_length=64, blank=True)
    size_bytes = models.PositiveBigIntegerField(default=0)
    signatures = models.JSONField(default=dict)
    unknown_ops = models.JSONField(default=list)
    listed_ops = models.JSONField(default=dict)
    approved_by = models.CharField(max_length=150, blank=True, default="")
    rules = models.CharField(max_length=64, blank=True, default="")
    raised_ops = models.JSONField(default=dict)
    joining = models.JSONField(null=True, default=None)
    source = models.CharField(max_length=10)
    added_by = models.CharField(max_length=150)
    added_at = models.DateTimeField(default=timezone.now)
    vanished_at = models.DateTimeField(null=True, blank=True)
    is_withdrawn = models.BooleanField(default=False)
    manifest = models.CharField(max_length=64, blank=True, default="")
    first_ready_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)
    deleted_by = models.CharField(max_length=150, blank=True, default="")

    objects = Kept["ModelVersion"]()
    with_deleted: models.Manager["ModelVersion"] = models.Manager()

    class Meta:
        """Newest first."""

        default_permissions = ()
        ordering = ("-number",)
        constraints = (models.UniqueConstraint(fields=("model", "number"), name="version_number_is_unique"),)

    def __str__(self) -> str:
        return f"{self.model}:{self.number}"

    @property
    def folder(self) -> str:
        """Its folder as an absolute path."""
        return _real(self.path)

    @property
    def is_remote(self) -> bool:
        """Whether it lies in an object store: hosts fetch it."""
        return "://" in self.path

    @property
    def is_listed(self) -> bool:
        """Whether the list of its files is published."""
        return self.is_remote or self.source == REPOSITORY

    @property
    def is_approved(self) -> bool:
        """Whether no operation of it waits for approval."""
        return not self.listed_ops or bool(self.approved_by)

    @property
    def repository_name(self) -> str:
        """The repository whose credentials its files are read with; empty = it lies where people said."""
        if self.source == UPLOAD and self.is_remote:
            return UPLOADS
        return self.model.repository.name if self.source == REPOSITORY and self.model.repository else ""

    @property
    def interested(self) -> set[str]:
        """Operators who may not approve it: who added it, and who added or last changed the repository that did."""
        brought_by = self.model.repository if self.source == REPOSITORY else None
        return {self.added_by, *((brought_by.added_by, brought_by.changed_by) if brought_by is not None else ())}

    @property
    def may_serve(self) -> bool:
        """Whether it is approved, and neither withdrawn nor deleted."""
        return self.is_approved and not self.is_withdrawn and self.deleted_at is None

    @property
    def callable_signatures(self) -> dict[str, Any]:
        """Those that a request may name."""
        return {name: one for name, one in self.signatures.items() if not name.startswith("__")}

    @property
    def tried(self) -> dict[str, Any] | None:
        """What was found of joined requests of the files it has now: ``joined``, ``differs``, ``untried``, ..."""
        found: dict[str, Any] | None = self.joining
        return found if found is not None and found["digest"] == self.digest else None

    @property
    def refused_signatures(self) -> dict[str, str]:
        """Those that cannot be run, or not for all of their outputs, and why."""
        found = msgspec.convert(self.callable_signatures, dict[str, modeldocs.Signature])
        return {name: why for name, one in found.items() if (why := refusal(one))}

    def document(self) -> modeldocs.Version:
        """What is published of this version."""
        tried = self.tried
        return modeldocs.Version(
            version=self.number,
            path=self.folder,
            repository=self.repository_name,
            digest=self.digest,
            size_bytes=self.size_bytes,
            signatures=msgspec.convert(self.signatures, dict[str, modeldocs.Signature]),
            joined=tuple(tried["joined"]) if tried is not None else None,
        )


class StoredUpload(models.Model):
    """Files of an uploaded version in the default repository, where that is an object store.

    url: the version's folder. Nothing is written there that lay there before, and nothing stays there without a row.
    files: path, bytes and ETag of each, as they were listed; before that, what is to be written. touched_at: a row that
    is WRITING and has not been touched for long is of a program that is gone.
    """

    WRITING = "writing"
    KEPT = "kept"
    LEAVING = "leaving"

    model = models.CharField(max_length=100)
    number = models.PositiveBigIntegerField()
    url = models.CharField(max_length=1000, unique=True)
    files = models.JSONField(default=list)
    size_bytes = models.PositiveBigIntegerField(default=0)
    sent_bytes = models.PositiveBigIntegerField(default=0)
    state = models.CharField(max_length=10, default=WRITING)
    added_by = models.CharField(max_length=150)
    touched_at = models.DateTimeField(default=timezone.now)

    class Meta:
        """Newest first."""

        default_permissions = ()
        ordering = ("-pk",)

    def __str__(self) -> str:
        return f"{self.model}:{self.number} at {self.url}"

    def document(self) -> manifests.Manifest:
        """What is published of the files."""
        files = msgspec.convert(self.files, tuple[manifests.ManifestFile, ...])
        at = self.touched_at.timestamp()
        return manifests.Manifest(repository=UPLOADS, url=self.url, files=files, listed_at=at)


class VersionLabel(models.Model):
    """A name (``stable``, ``canary``) that points at a version and can be moved."""

    model = models.ForeignKey(ServedModel, on_delete=models.CASCADE, related_name="labels")
    name = models.CharField(max_length=50)
    version = models.ForeignKey(ModelVersion, on_delete=models.CASCADE, related_name="labels")

    class Meta:
        """By name."""

        default_permissions = ()
        ordering = ("name",)
        constraints = (models.UniqueConstraint(fields=("model", "name"), name="label_is_unique_per_model"),)

    def __str__(self) -> str:
        return f"{self.name} -> {self.version.number}"


class VersionSplit(models.Model):
    """Part of the requests of a default or a label get another version (:mod:`console.splits`).

    target: the label; empty = the default. base: what it named when the split began, and names until that ends.
    weight, header: as :class:`signalbox.wire.splits.Split` has them. halted_at: when the controller rolled it back, by
    itself; halted: why; evidence: the figures that it decided by. shadow, tolerance: as the split has them, since
    ``shadow_since``; shadowed: what each worker has found, by its id and boot (:class:`ShadowFigures`); differs: why
    operators have an alarm that the outputs are not alike.
    """

    model = models.ForeignKey(ServedModel, on_delete=models.CASCADE, related_name="splits")
    target = models.CharField(max_length=50, blank=True)
    base = models.PositiveBigIntegerField()
    candidate = models.PositiveBigIntegerField()
    weight = models.FloatField()
    header = models.CharField(max_length=64, blank=True)
    started_at = models.DateTimeField(default=timezone.now)
    started_by = models.CharField(max_length=150)
    halted_at = models.DateTimeField(null=True, blank=True)
    halted = models.CharField(max_length=300, blank=True, default="")
    evidence = models.JSONField(default=dict)
    shadow = models.FloatField(default=0.0)
    tolerance = models.FloatField(default=TOLERANCE)
    shadow_since = models.DateTimeField(null=True, blank=True)
    shadowed = models.JSONField(default=dict)
    differs = models.CharField(max_length=300, blank=True, default="")

    class Meta:
        """The default first."""

        default_permissions = ()
        ordering = ("target",)
        constraints = (models.UniqueConstraint(fields=("model", "target"), name="split_is_unique_per_target"),)

    def __str__(self) -> str:
        return f"{self.what}: {self.weight:.0%} to version {self.candidate}"

    @property
    def what(self) -> str:
        """What is split, in words."""
        return f"label {self.target}" if self.target else "the default"

    @property
    def percent(self) -> str:
        """The weight as a form has it."""
        return f"{100 * self.weight:.6g}"

    def document(self) -> Split:
        """What is published of it: nobody gets the candidate of one that is halted."""
        is_on = self.halted_at is None
        is_shadowed = is_on and self.shadow > 0 and self.shadow_since is not None
        return Split(
            target=self.target,
            candidate=self.candidate,
            weight=self.weight if is_on else 0.0,
            header=self.header,
            halted=self.halted,
            shadow=self.shadow if is_shadowed else 0.0,
            tolerance=self.tolerance,
            since=self.shadow_since.timestamp() if is_shadowed and self.shadow_since is not None else 0.0,
            differs=self.differs,
        )

    @property
    def shadow_percent(self) -> str:
        """The share as a form has it."""
        return f"{100 * self.shadow:.6g}"
