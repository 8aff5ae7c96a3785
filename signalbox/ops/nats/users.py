"""``signalbox nats-users``: print the users block of a nats-server configuration."""

import argparse

from signalbox.ops import natsserver


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which workers and accounts have users of their own."""
    parser.description = (
        "Print the authorization block of nats.conf: one user per role with the subjects it needs and no others. "
        "Passwords stay outside, in NATS_<USER>_PASSWORD of the server's environment."
    )
    parser.add_argument(
        "--worker",
        action="append",
        default=[],
        metavar="ID[=GPU,...]",
        help=(
            "A user for this worker alone (SIGNALBOX_NATS_USER is its SIGNALBOX_WORKER_ID), who may write its own "
            "tickets and presence and, with device ids, their leases only. Given once, there is no user that all "
            "workers share."
        ),
    )

    parser.add_argument(
        "--reader",
        action="append",
        default=[],
        metavar="ACCOUNT",
        help=(
            "A user reader-ACCOUNT for an account's own services, which may read the ends of the account's jobs in "
            "RESULTS and the outputs that these name, and nothing else (docs/results.md)."
        ),
    )


def run(arguments: argparse.Namespace) -> int:
    """Print it; the exit status."""
    workers: dict[str, list[str]] = {}
    for text in arguments.worker:
        name, _, gpus = text.partition("=")
        workers[name] = [gpu for gpu in gpus.split(",") if gpu]
    print(natsserver.users(workers, list(dict.fromkeys(arguments.reader))))
    return 0
