"""Values of audit rows as people read them, by unit. Names: what ids stand for, as the caller has looked them up."""

from collections.abc import Callable, Mapping
from typing import Any, Final

Names = Mapping[str, str]
Unit = Callable[[Any, Names], str]
_BINARY: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {}, ())


def is_nothing(value: Any) -> bool:
    """Whether a value says nothing: none, or an empty text, list or record. 0 and no are values."""
    return value is None or (not isinstance(value, bool | int | float) and value in _NOTHING)


def plain(value: Any, names: Names) -> str:
    """``none``, ``yes``, ``a, b``, ``name: value``, or the text."""
    if is_nothing(value):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(plain(part, names) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{name}: {plain(part, names)}" for name, part in value.items())
    return str(value)


def switch(value: Any, _: Names) -> str:
    """``on`` or ``off``."""
    return "on" if value else "off"


def version(value: Any, names: Names) -> str:
    """``version 3``; 0 is the one that requests get."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"version {value}" if value else "the version that requests get"
    return plain(value, names)


def versions(value: Any, names: Names) -> str:
    """``1, 2``."""
    return plain(value, names)


def size(value: Any, names: Names) -> str:
    """``64 MiB``."""
    if not _is_number(value):
        return plain(value, names)
    left = float(value)
    for unit in _BINARY:
        if abs(left) < 1024 or unit == _BINARY[-1]:
            return f"{left:.4g} {unit}"
        left /= 1024
    return ""


def share(value: Any, names: Names) -> str:
    """``10 %`` of 0.1."""
    return f"{100 * value:.4g} %" if _is_number(value) else plain(value, names)


def duration(value: Any, names: Names) -> str:
    """Seconds as ``20 ms``, ``1.5 s``, ``10 min``, ``1 h``, ``2 days``."""
    if not _is_number(value):
        return plain(value, names)
    if 0 < value < 1:
        return f"{value * 1000:.4g} ms"
    for length, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if value >= 2 * length or (unit != "days" and value >= length):
            return f"{value / length:.4g} {unit}"
    return f"{value:.4g} s"


def duration_ms(value: Any, names: Names) -> str:
    """Milliseconds, as :func:`duration` has seconds."""
    return duration(value / 1000, names) if _is_number(value) else plain(value, names)


def of_count(one: str, many: str = "", none: str = "none") -> Unit:
    """``1 day``, ``3 days``; 0 in words of its own."""

    def counted(value: Any, names: Names) -> str:
        if not _is_number(value):
            return plain(value, names)
        if not value:
            return none
        return f"{value:.10g} {one if value == 1 else many or f'{one}s'}"

    return counted


def bounded(unit: Unit, none: str) -> Unit:
    """A unit whose 0 means something of its own, as ``no limit``."""
    return lambda value, names: unit(value, names) if value else none


def named(value: Any, names: Names) -> str:
    """An id, or several, by name; the id where there is none."""
    if is_nothing(value):
        return "none"
    if isinstance(value, list | tuple):
        return ", ".join(named(part, names) for part in value)
    return names.get(str(value), str(value))


def digest(value: Any, names: Names) -> str:
    """The first letters of a digest."""
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 12 else plain(value, names)


def instant(value: Any, names: Names) -> str:
    """``2026-11-29 10:45`` of a time as text or in seconds."""
    text = str(value)
    return f"{text[:10]} {text[11:16]} UTC" if text[4:5] == "-" and text[10:11] in {"T", " "} else plain(value, names)


def reasons(value: Any, names: Names) -> str:
    """``ReadFile (reads files)`` of operations and why they are listed."""
    if isinstance(value, dict) and value:
        return ", ".join(f"{name} ({why})" for name, why in value.items())
    return plain(value, names)


def models(value: Any, names: Names) -> str:
    """Names and beginnings of models; none is all of them. A number is how many."""
    if isinstance(value, int):
        return plain(value, names)
    return plain(value, names) if value else "every model"


def policy(value: Any, names: Names) -> str:
    """Which versions are served."""
    if not isinstance(value, dict):
        return plain(value, names)
    if value.get("kind") == "latest":
        return "the latest" if value.get("count") == 1 else f"the latest {value.get('count')}"
    return f"only {versions(value.get('versions'), names)}" if value.get("kind") == "specific" else "all"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
