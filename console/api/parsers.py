"""How a JSON body is read: within bounds that hold before anything is made of it."""

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import JSONParser

from console import bounds
from signalbox.front import jsonbody


class BoundedJSON(JSONParser):
    """The gateway's reader: an object, of bounded bytes, elements and depth, that gives no name twice.

    It takes ``NaN`` and ``Infinity``, as TensorFlow Serving does; each number of this API has bounds that refuse them.
    """

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The object. Raises :class:`InvalidRequest`, :class:`InvalidJson` or :class:`TooLarge`."""
        return jsonbody.parse(stream.read(), bounds.body()).doc
