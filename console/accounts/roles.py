"""The four role groups, kept equal to :data:`console.accounts.rights.ROLES`."""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission

from console.accounts.acts import ROLES


def sync_groups(sender: Any = None, **options: Any) -> None:
    """Makes each group hold exactly its role's permissions. Idempotent; runs after every migration."""
    using = options.get("using", "default")
    if sender is not None:
        # Django's own handler makes permissions too, but the order of handlers is not promised.
        create_permissions(sender, verbosity=0, using=using)
    found = {p.codename: p for p in Permission.objects.using(using).filter(content_type__app_label="accounts")}
    for name, acts in ROLES.items():
        group, _ = Group.objects.using(using).get_or_create(name=name)
        wanted = [found[act.codename] for act in acts if act.codename in found]
        group.permissions.set(wanted)
