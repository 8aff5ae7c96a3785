"""``python -m console token``: a first API token without a browser, for scripts on the same machine."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from console.accounts.models import User
from console.accounts.rights import Actor
from console.database import one_of
from console.operators import services


class Command(BaseCommand):
    help = "Make a REST API token that acts as an operator, and print it, this once."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="what the token is for")
        parser.add_argument("--user", required=True, help="the operator it acts as")
        parser.add_argument("--days", type=int, default=90, help="until it expires (%(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["user"]
        user = one_of(User.objects.filter(username=name, is_active=True), f"There is no active operator {name!r}.")
        actor = Actor(user=user, via="command")
        _, text = services.create_token(actor, options["name"], options["days"])
        self.stdout.write(text)
