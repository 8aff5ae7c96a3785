"""Tells the OpenAPI generator about operators' tokens."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class OperatorTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Bearer token."""

    target_class = "console.api.authentication.OperatorTokenAuthentication"
    name = "operatorToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """As OpenAPI says it."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "sbo_<id>_<secret>"}
