"""The page that documents the REST API: the OpenAPI document in the console's own words and colours."""

from itertools import groupby
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.accounts.acts import Act
from console.api.schema import document
from console.web.guards import sees


@sees(Act.SYSTEM_VIEW)
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Every operation with what it takes and gives."""
    found = sorted(_operations(), key=lambda operation: operation["tag"])
    groups = [(tag, list(group)) for tag, group in groupby(found, lambda one: one["tag"])]
    return render(request, "api/index.html", {"groups": groups})


def _operations() -> list[dict[str, Any]]:
    """What the page shows of each operation, in the document's order."""
    return [
        {
            "method": method.upper(),
            "path": path,
            "what": _plain(operation["description"]),
            "tag": operation["tags"][0],
            "takes": _query(operation) + _body(operation),
            "gives": ", ".join(f"{status} {_name(r)}".strip() for status, r in operation["responses"].items()),
        }
        for path, item in document()["paths"].items()
        for method, operation in item.items()
    ]


def _query(operation: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        _field(
            parameter["name"],
            "query",
            parameter["schema"],
            parameter.get("description", ""),
            is_required=parameter.get("required", False),
        )
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    ]


def _body(operation: dict[str, Any]) -> list[dict[str, Any]]:
    fields = []
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(content["schema"])
        where = "form" if kind.startswith("multipart") else "body"
        for name, field in schema["properties"].items():
            is_required = name in schema.get("required", ())
            about = field.get("description", "")
            fields.append(_field(name, where, field, about, is_required=is_required))
    return fields


def _field(name: str, where: str, schema: dict[str, Any], about: str, *, is_required: bool) -> dict[str, Any]:
    bounds = [
        f"{words} {schema[key]}"
        for key, words in (("minimum", "from"), ("maximum", "to"), ("maxLength", "at most"), ("default", "default"))
        if schema.get(key) not in (None, "", [])
    ]
    return {
        "name": name,
        "where": where,
        "type": _type(schema),
        "is_required": is_required,
        "about": _plain(about),
        "bounds": ", ".join(bounds),
    }


def _type(schema: dict[str, Any]) -> str:
    resolved = _resolved(schema)
    if "enum" in resolved:
        return " | ".join(map(str, resolved["enum"]))
    if resolved.get("type") == "array":
        return f"list of {_type(resolved['items'])}"
    if resolved.get("format") == "binary":
        return "file"
    if resolved.get("type") == "object":
        return f"object ({', '.join(resolved.get('properties', ()))})"
    return f"{resolved.get('type', 'any')}{' or null' if resolved.get('nullable') else ''}"


def _name(response: dict[str, Any]) -> str:
    """The schema a response has, by name."""
    schemas = [content["schema"] for content in response.get("content", {}).values()]
    schema = schemas[0] if schemas else {}
    if schema.get("type") == "array":
        return f"list of {schema['items'].get('$ref', '').rsplit('/', 1)[-1]}"
    return str(schema.get("$ref", "")).rsplit("/", 1)[-1]


def _plain(words: str) -> str:
    """Without the marks that docstrings have around code."""
    return words.replace("`", "")


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return found
