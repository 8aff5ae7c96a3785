"""Refuses fields and query parameters that do not exist, by name, with the nearest name there is."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

_MOST_NAMED: Final = 8
_LONGEST: Final = 60
"""Of a name that is repeated and compared; what is sent has no such bound."""


def refuse_unknown(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Raises a 400 that names every unknown ``what`` (field, query parameter) and the one that was probably meant."""
    unknown = list(islice((name for name in given if name not in known), _MOST_NAMED))
    if unknown:
        raise ValidationError({name[:_LONGEST]: [_unknown(name[:_LONGEST], known, what)] for name in unknown})


def refuse_odd_query(request: Request, known: Collection[str]) -> None:
    """Raises a 400 that names every unknown query parameter, or each that is given more than once."""
    refuse_unknown(request.query_params, known, "query parameter")
    twice = [name for name, values in request.query_params.lists() if len(values) > 1]
    if twice:
        raise ValidationError({name: ["Give it once."] for name in twice})


def _unknown(name: str, known: Collection[str], what: str) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"There is no such {what}; did you mean {near[0]}?"
    return f"There is no such {what}. Known: {', '.join(sorted(known)) or 'none'}."


class Strict(serializers.Serializer[Any]):
    """Base of everything the REST API takes: a field it does not have is refused, never dropped."""

    def to_internal_value(self, data: Any) -> Any:
        """The parsed fields. Raises a 400 naming unknown ones."""
        if isinstance(data, Mapping):
            known = {name for name, field in self.fields.items() if not field.read_only}
            refuse_unknown(map(str, data), known, "field")
        return super().to_internal_value(data)
