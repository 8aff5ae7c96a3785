"""What may serve: models, versions, labels."""

from typing import Any, Final

import msgspec
from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from console.repositories.models import Repository
from signalbox.wire import messages
from signalbox.wire.signatures import refusal

REPOSITORY: Final = "repository"
"""Source of a version that a repository brought; others are ``path`` and ``upload``."""


def _real(kept: str) -> str:
    path: str = settings.CONSOLE.real_path(kept)
    return path


class ServedModel(models.Model):
    """A model by name. Its base folder holds ``<version>/saved_model.pb``, as in TensorFlow Serving.

    repository: the one that brought it and alone adds versions to it; None = people did.
    """

    name = models.CharField(max_length=100, unique=True)
    repository = models.ForeignKey(Repository, on_delete=models.PROTECT, null=True, blank=True, related_name="models")
    description = models.CharField(max_length=300, blank=True)
    base_path = models.CharField(max_length=1000)
    is_enabled = models.BooleanField(default=True)
    replicas = models.PositiveIntegerField(
        default=1,
        validators=[MaxValueValidator(1000)],
        help_text="GPUs it shall be resident on. 0: requests are refused with the reason.",
    )
    default_version = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty: the highest version.")
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

    class Meta:
        """By name."""

        default_permissions = ()
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def base_folder(self) -> str:
        """The base folder as an absolute path."""
        return _real(self.base_path)

    @property
    def serving_version(self) -> int | None:
        """What a request without a version gets; None while there is no version."""
        if self.default_version is not None:
            return self.default_version
        return max((v.number for v in self.versions.all() if v.may_serve), default=None)

    def document(self) -> messages.Model:
        """What is published of this model. Of many, prefetch ``versions`` and ``labels__version``."""
        served = (version for version in self.versions.all() if version.may_serve)
        versions = sorted(served, key=lambda version: version.number)
        return messages.Model(
            name=self.name,
            is_enabled=self.is_enabled,
            versions=tuple(version.document() for version in versions),
            default_version=self.serving_version,
            labels={label.name: label.version.number for label in self.labels.all()},
            replicas=self.replicas,
            batching=messages.Batching(
                max_size=self.max_batch_size,
                max_delay_ms=self.max_batch_delay_ms,
                rows_independent=self.rows_independent,
            ),
            limits=msgspec.convert(self, messages.Limits, from_attributes=True),
            access=self.repository.grant if self.repository is not None else messages.Access(),
            updated_at=self.updated_at.timestamp(),
        )


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
    def is_approved(self) -> bool:
        """Whether no operation of it waits for approval."""
        return not self.listed_ops or bool(self.approved_by)

    @property
    def interested(self) -> set[str]:
        """Operators who may not approve it: who added it, and who added or last changed the repository that did."""
        brought_by = self.model.repository if self.source == REPOSITORY else None
        return {self.added_by, *((brought_by.added_by, brought_by.changed_by) if brought_by is not None else ())}

    @property
    def may_serve(self) -> bool:
        """Whether it is approved, and not withdrawn."""
        return self.is_approved and not self.is_withdrawn

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
        found = msgspec.convert(self.callable_signatures, dict[str, messages.Signature])
        return {name: why for name, one in found.items() if (why := refusal(one))}

    def document(self) -> messages.Version:
        """What is published of this version."""
        tried = self.tried
        return messages.Version(
            version=self.number,
            path=self.folder,
            repository=self.model.repository.name if self.source == REPOSITORY and self.model.repository else "",
            digest=self.digest,
            size_bytes=self.size_bytes,
            signatures=msgspec.convert(self.signatures, dict[str, messages.Signature]),
            joined=tuple(tried["joined"]) if tried is not None else None,
        )


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
