"""Reads the fields of a body of the job API, and refuses unknown ones by name.

Otherwise a misspelt ``deadline_s`` would be ignored. TensorFlow Serving ignores unknown fields, and so do its calls
here.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from gateway_plugin.codec.decoder import INPUT_FIELDS
from signalbox.front.jsonbody import Bounds, parse
from signalbox.program.errors import InvalidRequest

SUBMIT_FIELDS: Final = (
    *("model", "version", "label", "signature_name", "priority", "deadline_s", "tags", "not_before", "webhook"),
    *sorted(INPUT_FIELDS),
)
_MOST_NAMED: Final = 3
_LONGEST: Final = 60
_EMPTY_BOUNDS: Final = Bounds(65_536, 1_000)
"""Bounds of a body that must hold no fields."""


class ModelTarget(NamedTuple):
    """The model that a job is for. At most one of ``version`` and ``label`` is given."""

    model: str
    version: int | None
    label: str | None


def target_of(fields: Mapping[str, Any]) -> ModelTarget:
    """The model, version and label that a submission names. Raises :class:`InvalidRequest`."""
    require_known(fields, SUBMIT_FIELDS)
    name, version, label = fields.get("model"), fields.get("version"), fields.get("label")
    if type(name) is not str or not name:
        got = ", ".join(sorted(map(str, fields))[:8]) or "nothing else"
        raise InvalidRequest(
            'The body must name a "model" (a string) and its inputs: {"model": "digits", "input": '
            f'{{"x": [...]}}}}, or "inputs", or "instances". It has: {got}.',
            field="model",
        )
    if version is not None and (type(version) is not int or not 0 <= version < 2**63):
        raise InvalidRequest('"version" must be a whole number.', field="version")
    if label is not None and type(label) is not str:
        raise InvalidRequest('"label" must be a string.', field="label")
    if version is not None and label is not None:
        raise InvalidRequest('Give "version" or "label", not both.', field="label")
    return ModelTarget(name, version, label)


def require_empty(body: bytes) -> None:
    """Check the body of a call that takes no fields: empty, ``null`` or an empty object.

    Raises :class:`InvalidRequest` and :class:`TooLarge`.
    """
    if body.strip() not in {b"", b"null"}:
        require_known(parse(body, _EMPTY_BOUNDS).doc, ())


def require_known(fields: Collection[str], known: Collection[str], what: str = "body", one: str = "field") -> None:
    """Raise :class:`InvalidRequest` for fields that are not ``known``; it names a similar known one.

    what, one: of what they are the fields, and what one is called there.
    """
    unknown = [name for name in fields if name not in known]
    if not unknown:
        return
    first = unknown[0][:_LONGEST]
    listed = ", ".join(f'"{name[:_LONGEST]}"' for name in unknown[:_MOST_NAMED])
    more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
    near = get_close_matches(first.lower(), known, n=1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    takes = ", ".join(f'"{name}"' for name in known) or f"no {one}s"
    raise InvalidRequest(
        f"The {what} has {f'an unknown {one}' if len(unknown) == 1 else f'unknown {one}s'}: {listed}{more}."
        f"{hint} This call takes {takes}.",
        field=first,
        nearest=near[0] if near else None,
    )
