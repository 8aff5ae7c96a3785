"""``python -m console COMMAND``: Django's management commands and ours.

``serve`` (the web console), ``projector``, ``controller``, ``outbox``, ``bootstrap``;
``--check-config`` prints the settings, secrets redacted, and exits.
"""

import os
import sys

from signalbox.program.errors import SignalboxError


def main(argv: list[str]) -> int:
    """Run one command. Returns the exit status; 2 for an invalid setting."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    try:
        if "--check-config" in argv:
            return _check_config()
        from django.core.management import execute_from_command_line

        execute_from_command_line(["python -m console", *(argv or ["help"])])
    except SignalboxError as error:
        print(f"console: {error.public_message}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def _check_config() -> int:
    from console import config
    from signalbox.program.settings import describe

    print(describe(config.read(), config.PREFIX))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
