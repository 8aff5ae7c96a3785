"""Renders the list of models that a key may use (docs/api.md)."""

from typing import Any

from gateway_plugin.admission.keyring import may_use
from gateway_plugin.tables.catalog import Catalog
from signalbox.wire.messages import ApiKey


def listed(catalog: Catalog, key: ApiKey) -> dict[str, Any]:
    """The models that a key may use, with versions, labels and replicas."""
    models = [model for model in catalog.all() if may_use(key, model.name)]
    return {
        "models": [model.name for model in models],
        "details": [
            {
                "name": model.name,
                "versions": sorted((v.version for v in model.versions), reverse=True),
                "default_version": catalog.current(model),
                "labels": {label: catalog.current(model, label) for label in model.labels},
                "is_enabled": model.is_enabled,
                "replicas": model.replicas,
            }
            for model in models
        ],
    }
