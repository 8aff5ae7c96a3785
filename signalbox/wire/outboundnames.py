"""Every name on the wire of what is sent out: ends of jobs and who reads them, webhooks, files and batches.

Their documents are in :mod:`signalbox.wire.outbound`, their streams and buckets in :mod:`signalbox.wire.names`.
"""

from typing import Final

from signalbox.wire.names import token, untoken

OUTBOUND: Final = "outbound"
"""The program that sends results out: its keys in ``duties`` begin so, and its short-lived consumer on ``STATE``."""
FOLLOWER_POSITION: Final = f"{OUTBOUND}.position"
"""Key in ``duties`` of how far ends of jobs are sent out."""
ENDS_LOST: Final = f"{OUTBOUND}.lost"
"""Key in ``duties`` of how many were removed before they were."""


# ---------------------------------------------------------------------------------- ends of jobs


def result(account: str, model: str, job_id: str) -> str:
    """Subject in ``RESULTS`` of a job's end."""
    return f"results.{token(account) or '-'}.{token(model)}.{job_id}"


def results(account: str = "", model: str = "") -> str:
    """Wildcard over the ends in ``RESULTS``: of an account, of a model, of both, or all of them."""
    return f"results.{token(account) or '*'}.{token(model) or '*'}.*"


def account_of_result(subject: str) -> str:
    """Account of an end in ``RESULTS``; ``-`` stands for none, there and in wildcards."""
    return untoken(subject.split(".")[1])


def event_of_results(account: str = "", model: str = "") -> str:
    """Core subject on which the server republishes what ``RESULTS`` gets, whole."""
    return f"evt.{results(account, model)}"


READERS: Final = 4
"""Consumers that an account's services may have on ``RESULTS``."""
_READER: Final = "reader-"


def reader(account: str) -> str:
    """NATS user of an account's services that read its ends."""
    return f"{_READER}{token(account)}"


def account_of_reader(user: str) -> str | None:
    """The account whose services a NATS user is for; None for another user."""
    return untoken(user.removeprefix(_READER)) if user.startswith(_READER) else None


def reader_consumer(account: str, number: int = 1) -> str:
    """A consumer on ``RESULTS`` that an account's reader may make, from 1 to :data:`READERS`."""
    return f"{reader(account)}-{number}"


# ---------------------------------------------------------------------------------- webhooks


def hook_consumer(hook: str) -> str:
    """The consumer on ``RESULTS`` of a webhook."""
    return f"hook-{token(hook)}"


def hook_secret(hook: str, secret: str) -> str:
    """KV key in ``hooksecrets``. secret: its own name, as the webhook's document has it."""
    return f"{token(hook)}.{secret}"


def delivery(hook: str, job_id: str, attempt: int) -> str:
    """Subject in ``DELIVERIES`` of one attempt at a delivery."""
    return f"dlv.{token(hook)}.{job_id}.{attempt}"


def deliveries(hook: str = "", job_id: str = "") -> str:
    """Wildcard over the attempts of a webhook, of one job of it, or all of them."""
    return f"dlv.{token(hook) or '*'}.{job_id or '*'}.*"


def ask_delivery(hook: str = "*") -> str:
    """Core subject on which an operator asks for a job's end to be delivered once more; the body is the job's id."""
    return f"deliver.{hook if hook == '*' else token(hook)}"


# ---------------------------------------------------------------------------------- files and batches


def file_chunk(account: str, file_id: str, number: int) -> str:
    """Subject in ``FILES`` of one chunk of a file, from 0 on."""
    return f"files.{token(account) or '-'}.{file_id}.{number}"


def file_chunks(account: str = "", file_id: str = "") -> str:
    """Wildcard over the chunks of a file, of an account's files, or all of them."""
    return f"files.{token(account) or '*'}.{file_id or '*'}.*"


def file_about(account: str = "", file_id: str = "") -> str:
    """Subject in ``FILES`` of what is known of a file beside its bytes; a wildcard over those of all where one is
    empty."""
    return f"files.{token(account) or '*'}.{file_id or '*'}.about"


def file_upload(account: str = "", file_id: str = "") -> str:
    """Subject in ``FILES`` of the upload by whose parts a file comes; wildcards as :func:`file_about` has them."""
    return f"files.{token(account) or '*'}.{file_id or '*'}.upload"


def account_of_file(subject: str) -> str:
    """The account of what lies under a subject of ``FILES``."""
    return untoken(subject.split(".")[1])


def number_of_chunk(subject: str) -> int | None:
    """Number of the chunk of a file that lies under a subject of ``FILES``; None where none does."""
    last = subject.rpartition(".")[2]
    return int(last) if last.isdecimal() else None


def batch_key(account: str, batch_id: str) -> str:
    """KV key in ``batches``."""
    return f"{token(account) or '-'}.{batch_id}"
