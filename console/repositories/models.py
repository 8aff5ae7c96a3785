"""Repositories, and what the controller found when it listed them last."""

from typing import Final, TypeVar

from django.core.validators import MinValueValidator
from django.db import models
from django.utils import timezone

from signalbox.wire import modeldocs

MOST_REFUSED: Final = 200
"""Refusals that are kept of one listing."""

Marked = TypeVar("Marked", bound=models.Model)


class Kept(models.Manager[Marked]):
    """Rows that are not marked as deleted."""

    def get_queryset(self) -> models.QuerySet[Marked]:
        """All of these."""
        return super().get_queryset().filter(deleted_at=None)


class Repository(models.Model):
    """A place where models lie: a name, a URL, and what counts for the models found there.

    url: ``file:///folder``, ``s3://bucket/prefix``, ``gs://...``, ``az://...``. defaults: settings of a new model, as
    ``catalog.modelsettings.SETTINGS`` names them. is_noticed: the controller lists it and registers what is new.
    changed_by: who added it or changed it last; that operator approves none of its versions. deleted_at: as of a model;
    its models were marked at the same instant.
    """

    PRIVATE = "private"
    ACCOUNTS = "accounts"
    EVERYBODY = "everybody"
    ACCESS: Final = (
        (PRIVATE, "Only keys whose list names the model"),
        (ACCOUNTS, "These accounts, and keys whose list names the model"),
        (EVERYBODY, "Everybody"),
    )

    name = models.CharField(max_length=50, unique=True)
    url = models.CharField(max_length=1000)
    description = models.CharField(max_length=300, blank=True)
    is_noticed = models.BooleanField(default=True)
    defaults = models.JSONField(default=dict)
    access = models.CharField(max_length=10, choices=ACCESS, default=PRIVATE)
    access_accounts = models.JSONField(default=list)
    marker = models.CharField(
        max_length=100, blank=True, help_text="File that a version's folder gets last. Empty: none is waited for."
    )
    settle_s = models.FloatField(
        default=20.0,
        validators=[MinValueValidator(0.0)],
        help_text="Without a marker, a version's files must be as they are for so long, in seconds.",
    )
    grace_s = models.FloatField(
        default=3600.0,
        validators=[MinValueValidator(0.0)],
        help_text="A version that has vanished is withdrawn after so long, in seconds.",
    )
    added_by = models.CharField(max_length=150)
    changed_by = models.CharField(max_length=150)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True, blank=True)
    deleted_by = models.CharField(max_length=150, blank=True, default="")

    objects = Kept["Repository"]()
    with_deleted: models.Manager["Repository"] = models.Manager()

    class Meta:
        """By name."""

        default_permissions = ()
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def is_local(self) -> bool:
        """Whether its files are read in place, on every host."""
        return self.url.startswith("file://")

    @property
    def grant(self) -> modeldocs.Access:
        """Who may call its models without being named."""
        accounts = tuple(self.access_accounts) if self.access == self.ACCOUNTS else ()
        return modeldocs.Access(is_open=self.access == self.EVERYBODY, accounts=accounts)


class Listing(models.Model):
    """What the last listing of a repository found. Only the controller writes it.

    listed_at: of the last that succeeded; None = none did. error: why the last one failed, empty where it did not.
    alarm: why what has vanished is not withdrawn. refused: what was found and not taken, and why, by its path below the
    repository, at most :data:`MOST_REFUSED`; refusals counts all.
    """

    repository = models.OneToOneField(Repository, on_delete=models.CASCADE, related_name="listing", primary_key=True)
    listed_at = models.DateTimeField(null=True)
    tried_at = models.DateTimeField(null=True)
    took_s = models.FloatField(default=0.0)
    error = models.CharField(max_length=500, blank=True)
    alarm = models.CharField(max_length=500, blank=True)
    models_found = models.PositiveIntegerField(default=0)
    versions_found = models.PositiveIntegerField(default=0)
    waiting = models.PositiveIntegerField(default=0, help_text="Versions that are not whole, or have not settled.")
    refused = models.JSONField(default=dict)
    refusals = models.PositiveIntegerField(default=0)

    class Meta:
        """One row for each repository."""

        default_permissions = ()

    def __str__(self) -> str:
        return f"listing of {self.repository_id}"
