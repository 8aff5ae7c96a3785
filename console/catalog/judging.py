"""Judges versions again after the list of allowed operations has changed.

One that serves goes on serving: to take it away is a decision too, and a person's. What it would need approval for by
the list of today stands on its page and in the audit, until a person approves it as any other version.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from channels.db import database_sync_to_async
from django.db import transaction

from console.accounts.acts import Act
from console.accounts.rights import system_actor
from console.audit.acts import Target, act
from console.catalog import inspection, storing
from console.catalog.models import REPOSITORY, ModelVersion
from signalbox.program import log
from signalbox.program.errors import Conflict, SignalboxError

EVERY_S: Final = 3600.0
"""For versions that could not be read when this program started."""
_ACTOR: Final = system_actor("judging")


async def keep_judged() -> None:
    """Judge versions in the background, until cancelled: inspection is slow, and a page must not wait for it."""
    while True:
        try:
            await database_sync_to_async(judge_anew, thread_sensitive=False)()
        except SignalboxError as error:
            log.warning("catalog.inspection_failed", reason=error.public_message)
        except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
            log.exception("catalog.inspection_failed")
        await asyncio.sleep(EVERY_S)


def judge_anew() -> int:
    """Judge each version that was judged by another list; how many were. Idempotent, and may run twice at once.

    Those that a repository brought are judged where it is listed (:mod:`console.noticing`).
    Raises :class:`Misconfigured` where the inspector does not run.
    """
    if not ModelVersion.objects.exists():
        return 0
    rules = inspection.rules()
    judged = 0
    for version in ModelVersion.objects.exclude(rules=rules).exclude(source=REPOSITORY).select_related("model"):
        try:
            found = _inspected(version)
        except SignalboxError as error:
            log.warning("catalog.inspection_failed", version=str(version), reason=error.public_message)
            continue
        note(version.pk, found.rules, found.listed)
        judged += 1
    return judged


def _inspected(version: ModelVersion) -> inspection.Inspection:
    """Raises :class:`Conflict` where its files have changed: workers refuse them."""
    if version.is_remote:
        return storing.read_graph(version).whole(version.size_bytes)
    found = inspection.inspect(Path(version.folder))
    if found.digest != version.digest:
        raise Conflict("Its files have changed.")
    return found


@transaction.atomic
def note(pk: int, rules: str, listed: Mapping[str, str]) -> None:
    """Note what needs approval by the list with the digest ``rules``. Idempotent."""
    version = ModelVersion.objects.select_for_update(of=("self",)).select_related("model").filter(pk=pk).first()
    if version is None or version.rules == rules:  # deleted meanwhile, or judged by a program beside this one
        return
    news = {op: why for op, why in listed.items() if op not in version.listed_ops}
    is_reported = not news or news == version.raised_ops
    version.rules = rules
    if version.is_approved:
        version.raised_ops = news
    else:
        version.listed_ops = {**version.listed_ops, **news}
    version.save(update_fields=["rules", "raised_ops", "listed_ops"])
    if is_reported:
        return
    reason = f"The list of operations has changed: version {version.number} is judged anew."
    target = Target("model", version.model.name)
    with act(_ACTOR, Act.MODELS_REGISTER, target, reason=reason) as change:
        change.after = {"version": version.number, "would_need_approval": news}
    log.warning("catalog.approval_needed", version=str(version), operations=sorted(news))
