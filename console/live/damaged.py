"""Alarms for data that NATS has lost: each stream for a day, and how many accepted jobs ended because of it."""

from django.utils import timezone

from console.board.rows import Alarm
from console.projector import damage


def damaged() -> dict[str, Alarm]:
    """The alarms that stand, by key."""
    found = {}
    for one in damage.standing():
        text = f"NATS lost data: stream {one.stream} {one.what}."
        if one.results:
            text += f" The results of up to {one.results} ended jobs are gone."
        found[f"damage:{one.stream}"] = Alarm("error", text, one.at.timestamp(), "/jobs")
    if count := damage.lost_jobs():
        noun = "accepted job was" if count == 1 else "accepted jobs were"
        text = f"{count} {noun} lost within a day: NATS no longer held them or their inputs. They ended as input_lost."
        since = (timezone.now() - damage.SHOWN).timestamp()
        found["damage:jobs"] = Alarm("error", text, since, "/jobs?q=error:input_lost")
    return found
