"""The OpenAPI document: what it says of operators' tokens, and what it promises of each operation's query."""

import functools
import re
from typing import Any, Final, NamedTuple

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator

_CONVERTER: Final = re.compile(r"<(?:\w+:)?(\w+)>")


class OperatorTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Bearer token."""

    target_class = "console.accounts.authentication.OperatorTokenAuthentication"
    name = "operatorToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """The scheme of tokens, in OpenAPI's terms."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "sbo_<id>_<secret>"}


@functools.cache
def document() -> dict[str, Any]:
    """The whole document. The same for everybody, so made once a process."""
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return made


class Takes(NamedTuple):
    """What an operation takes beside its path. query: names of its parameters. body: whether it has one."""

    query: frozenset[str]
    body: bool


def taken(method: str, route: str) -> Takes | None:
    """What the document says of an operation; None where there is no such operation.

    method: in lower case, HEAD as GET. route: Django's, as ``api/jobs/<str:job_id>``.
    """
    path = "/" + _CONVERTER.sub(r"{\1}", route)
    operation = document()["paths"].get(path, {}).get("get" if method == "head" else method)
    if operation is None:
        return None
    parameters = operation.get("parameters", ())
    query = frozenset(p["name"] for p in parameters if p["in"] == "query")
    return Takes(query, "requestBody" in operation)
