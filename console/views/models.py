"""Saved views."""

from django.db import models
from django.utils import timezone


class SavedView(models.Model):
    """A list's filter under a name. of_list: as :data:`console.views.services.LISTS`. query: as in the list's URL."""

    owner = models.ForeignKey("accounts.User", on_delete=models.PROTECT, related_name="views")
    of_list = models.CharField(max_length=20)
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2000, blank=True)
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        """By name."""

        default_permissions = ()
        ordering = ("name", "pk")
        constraints = (models.UniqueConstraint(fields=("owner", "of_list", "name"), name="view_of_owner"),)

    def __str__(self) -> str:
        return f"{self.of_list}: {self.name}"

    @property
    def href(self) -> str:
        """The list with this filter."""
        return f"/{self.of_list}?{self.query}" if self.query else f"/{self.of_list}"
