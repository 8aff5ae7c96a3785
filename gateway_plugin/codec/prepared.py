"""A model version made ready for decoding: the plans of its signatures."""

from collections.abc import Mapping

import msgspec

from gateway_plugin.codec.inputs import Plan, plans
from signalbox.wire.messages import Model, Version


class PreparedVersion:
    """One version with the plans of its signatures.

    signatures_json: the same as JSON, for a process that has to make its own plans.
    """

    def __init__(self, model: Model, version: Version) -> None:
        self.model = model
        self.version = version
        self.batch_prefix = f"{version.version}/"
        self.plans: Mapping[str, Plan] = plans(version.signatures, batch_prefix=self.batch_prefix)
        self.signatures_json = msgspec.json.encode(version.signatures)
