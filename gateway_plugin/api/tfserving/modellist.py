"""Renders the list of models that a key may use (docs/api.md)."""

from typing import Any

from gateway_plugin.tables.catalog import Catalog
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.modeldocs import Model


def listed(catalog: Catalog, key: ApiKey) -> dict[str, Any]:
    """The models that a key may use, with versions, labels and replicas."""
    details = [_details(catalog, model) for model in catalog.all(key)]
    return {"models": [each["name"] for each in details], "details": details}


def _details(catalog: Catalog, model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "versions": sorted((v.version for v in model.versions), reverse=True),
        "default_version": catalog.current(model),
        "labels": {label: catalog.current(model, label) for label in model.labels},
        "is_enabled": model.is_enabled,
        "replicas": model.replicas,
    }
