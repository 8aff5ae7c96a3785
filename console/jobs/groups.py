"""Groups failures that are alike: of one code, with messages that differ in numbers, ids and quoted parts only."""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import Final

from console.jobs import listing
from console.jobs.models import HAS_ERROR, Job
from console.jobs.query import JobFilter, quoted

GROUPED: Final = 5_000
"""Jobs that one request groups."""
SHOWN: Final = 100
"""Groups of them that are shown."""
_COLUMNS: Final = ("model", "error_code", "error_group", "created_at")
LENGTH: Final = 12
"""Hexadecimal digits of a fingerprint."""
_QUOTED: Final = re.compile(r""""[^"]*"|(?<!\w)'[^']*'|`[^`]*`|“[^”]*”""")
_ID: Final = re.compile(r"\b(?=[0-9a-f-]*\d)[0-9a-f]{8,}(?:-[0-9a-f]+)*\b|\b0x[0-9a-f]+", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)*")


def fingerprint(code: str, message: str) -> str:
    """What errors that are alike have in common, in hexadecimal digits; empty where there is no error."""
    if not code:
        return ""
    return blake2b(f"{code}\0{normalised(message)}".encode(), digest_size=LENGTH // 2).hexdigest()


def normalised(message: str) -> str:
    """The message with ``…`` in the place of what differs from job to job: quoted parts, ids, numbers."""
    text = message
    for pattern in (_QUOTED, _ID, _NUMBER):
        text = pattern.sub("…", text)
    return text


@dataclass(frozen=True)
class Group:
    """Failures that are alike, of one model. example: the newest of them, ``message`` is its error's. first, last: when
    the oldest and the newest were created.
    """

    model: str
    code: str
    group: str
    count: int
    first: datetime
    last: datetime
    example: str
    message: str = ""

    @property
    def words(self) -> str:
        """The filter that finds them."""
        return f"{quoted('model', self.model)} {quoted('group', self.group)}"


@dataclass(frozen=True)
class Groups:
    """groups: the largest first. searched_to: nothing older was looked at; None = all was."""

    groups: list[Group]
    searched_to: datetime | None


def by_error(asked: JobFilter) -> Groups:
    """The newest :data:`GROUPED` jobs of a filter that have an error, by model and error."""
    with_error = replace(asked, rest=HAS_ERROR if asked.rest is None else asked.rest & HAS_ERROR)
    page = listing.page(with_error, size=GROUPED, columns=_COLUMNS)
    found: dict[tuple[str, str], list[Job]] = {}
    for job in page.jobs:
        found.setdefault((job.model, job.error_group), []).append(job)
    largest = sorted(found.values(), key=lambda jobs: (-len(jobs), -jobs[0].created_at.timestamp()))[:SHOWN]
    examples = Job.objects.filter(pk__in=[jobs[0].pk for jobs in largest]).values_list("pk", "error_message")
    messages = dict(examples)
    groups = [_group(jobs, messages.get(jobs[0].pk, "")) for jobs in largest]
    is_cut = page.older is not None and page.searched_to is None
    return Groups(groups, page.jobs[-1].created_at if is_cut else page.searched_to)


def _group(jobs: list[Job], message: str) -> Group:
    newest, oldest = jobs[0], jobs[-1]
    return Group(
        newest.model,
        newest.error_code,
        newest.error_group,
        len(jobs),
        oldest.created_at,
        newest.created_at,
        newest.pk,
        message,
    )
