"""``python -m console bootstrap``."""

import os
import secrets
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand

from console.accounts.rights import system_actor
from console.accounts.roles import sync_groups
from console.catalog.folders import clear_staging
from console.catalog.roots import relocate
from console.operators import services
from console.repositories.services import sync_roots
from signalbox.program import log


class Command(BaseCommand):
    help = (
        "Make the console ready: data folder, secret key, database, roles, first admin."
        " Safe to repeat; a made-up password is printed once."
    )
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        console = settings.CONSOLE
        log.configure(console.log_level, program="bootstrap")
        console.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        console.repository.mkdir(parents=True, exist_ok=True)
        if not console.secret_key:
            _keep_secret(console.secret_file)
        call_command("migrate", interactive=False, verbosity=options["verbosity"] - 1)
        sync_groups()
        relocate()
        sync_roots()
        clear_staging()
        password = services.first_admin(system_actor("bootstrap"), console.admin_user, console.admin_password)
        if password is None:
            self.stdout.write("The console is ready; its admin exists already.")
        elif console.admin_password:
            self.stdout.write(f"The console is ready. Admin {console.admin_user!r} has the given password.")
        else:
            self.stdout.write(
                f"The console is ready. First admin: {console.admin_user}\nPassword (shown this once): {password}"
            )


def _keep_secret(path: Any) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(handle, "w") as sink:
        sink.write(secrets.token_urlsafe(48))
