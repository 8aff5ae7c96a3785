"""Numbers as people read them. Registered as built-ins: no page has to load them."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.contrib.messages.storage.base import Message
from django.template import Context
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from console.audit.models import AuditEntry
from console.board.holds import Hold
from console.catalog import joining, policy
from console.fleet import hosts, serving
from console.fleet.residents import Resident
from console.jobs import standing
from console.pages import flash, sudo
from console.payloads import snippets
from console.undo import services as undoing
from console.web.again import SLIP
from console.web.middleware import actor_of
from signalbox.program import words

register = template.Library()
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


@register.filter
def filesize(value: float | None) -> str:
    """``1.5 MiB``; nothing is a dash."""
    if value is None:
        return "–"
    size = float(value)
    for unit in _BINARY:
        if size < 1024 or unit == _BINARY[-1]:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return ""


@register.filter
def grouped(count: int) -> str:
    """``1 701 556``, with spaces at which no line ends."""
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


@register.filter
def duration(milliseconds: float | None) -> str:
    """Milliseconds as ``3.2 ms``, ``1.24 s`` or ``4 min 10 s``; nothing is a dash."""
    if milliseconds is None:
        return "–"
    ms = max(0.0, float(milliseconds))
    if ms < 1000:
        return f"{ms:.1f} ms" if ms < 100 else f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.2f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


@register.filter
def before_now(milliseconds: float) -> str:
    """The moment that is so long ago, for a script that counts on."""
    return (datetime.now(UTC) - timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


@register.filter
def percent(share: float) -> str:
    """``10 %``, ``0.5 %``."""
    return f"{100 * share:.4g} %"


@register.filter
def percent_round(share: float) -> str:
    """``62 %``."""
    return f"{100 * share:.0f} %"


@register.filter
def rate(per_second: float | None) -> str:
    """``0.3/s``, ``52/s``; nothing is a dash."""
    if not per_second:
        return "–"
    return f"{per_second:.1f}/s" if per_second < 10 else f"{per_second:.0f}/s"


@register.filter
def rate_small(per_second: float) -> str:
    """A rate that may be low: ``3/s``, ``4/min``, ``2/h``."""
    for factor, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if per_second * factor >= 1:
            return f"{per_second * factor:.3g}/{unit}"
    return f"{per_second * 86_400:.3g}/day"


@register.filter
def instant(at: float) -> datetime:
    """A moment, of UTC seconds."""
    return datetime.fromtimestamp(at, UTC)


@register.filter
def relative(at: datetime) -> str:
    """``12 s ago``, ``in 3 d``: as static/js/times.js says it, or the first tick would move what stands beside it."""
    seconds = (timezone.now() - at).total_seconds()
    if abs(seconds) < 2:
        return "now"
    minutes = round(abs(seconds) / 60)
    hours = minutes // 60
    if abs(seconds) < 90:
        whole = f"{round(abs(seconds))} s"
    elif minutes < 90:
        whole = f"{minutes} min"
    else:
        whole = f"{hours} h {minutes % 60:02} min" if hours < 36 else f"{round(hours / 24)} d"
    return f"in {whole}" if seconds < 0 else f"{whole} ago"


@register.filter
def shape(sizes: list[int] | None) -> str:
    """``[?, 28, 28]``; -1 is any size, nothing is any rank."""
    if sizes is None:
        return "any rank"
    return "[" + ", ".join("?" if size == -1 else str(size) for size in sizes) + "]"


@register.filter
def reported(value: Any) -> str:
    """A value of an audit row in words: ``yes``, ``none``, ``a, b``, ``name: value``."""
    if value is None or value in ("", [], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{name}: {reported(part)}" for name, part in value.items())
    return str(value)


@register.filter
def item(mapping: dict[str, Any], key: str) -> Any:
    """``mapping[key]``, or nothing."""
    return mapping.get(key)


@register.filter
def seconds(value: float) -> str:
    """``4.8 ms``, ``1.5 s``, ``20 s``, ``1 h``."""
    if 0 < value < 1:
        return duration(value * 1000)
    return f"{value:.3g} s" if value < 60 else duration(value * 1000).removesuffix(" 0 min").removesuffix(" 0 s")


@register.filter
def undo(message: Message) -> dict[str, Any] | None:
    """The button beside a message: see :func:`console.pages.flash.done`."""
    return flash.undo_of(message)


@register.simple_tag(takes_context=True)
def may_undo(context: Context, entry: AuditEntry) -> bool:
    """Whether who looks at the page could take an act of its history back now."""
    return undoing.may_undo(actor_of(context["request"]), entry)


register.filter("host_id", hosts.id_of)
register.filter("counted", words.counted)
register.filter("joining", joining.state_of)
register.filter("joining_found", joining.found_in)
register.filter("standing", standing.of)
register.filter("spent", standing.spent)
register.filter("ticking", standing.ticking)
register.filter("policy", policy.shown)
register.filter("served", serving.served)
register.filter("next_version", serving.next_version)
register.filter("ready", serving.ready)


@register.filter
def figure(value: Any) -> str:
    """A number of a tensor in six digits; whole numbers and words as they are, a pair as a complex number."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return f"{figure(value[0])} {figure(value[1])}i"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


register.simple_tag(snippets.of_job, name="again")


@register.filter
def next_to_leave(found: Iterable[Resident]) -> Resident | None:
    """What leaves a device's memory next, of :func:`console.fleet.residents.of`."""
    return next((one for one in found if one.turn == 1), None)


@register.filter
def held_for(hold: Hold) -> float:
    """Seconds that a hold lasted, 0 = it still does."""
    return max(0.0, hold.until - hold.since) if hold.until is not None else 0.0


@register.filter
def is_below(path: str, place: str) -> bool:
    """Whether a page is the place itself or lies below it; below ``/`` is only itself."""
    return path == place or (place != "/" and path.startswith(f"{place}/"))


@register.simple_tag(takes_context=True)
def slip(context: Context, route: str, *args: str) -> SafeString | str:
    """The hidden field of a form that asks for the password, sent to ``route``: see :mod:`console.pages.sudo`."""
    text = sudo.slip(context["request"], reverse(route, args=args))
    if not text:
        return ""
    return format_html('<input type="hidden" name="{}" value="{}">', SLIP, text)
