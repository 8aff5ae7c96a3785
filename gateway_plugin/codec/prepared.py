"""A model version made ready for decoding: the plans of its signatures."""

from collections.abc import Mapping

from gateway_plugin.codec.inputs import Plan, plans
from signalbox.wire.modeldocs import Model, Version


class PreparedVersion:
    """One version with the plans of its signatures."""

    def __init__(self, model: Model, version: Version) -> None:
        self.model = model
        self.version = version
        self.batch_prefix = f"{version.version}/"
        self.plans: Mapping[str, Plan] = plans(version.signatures, batch_prefix=self.batch_prefix)
