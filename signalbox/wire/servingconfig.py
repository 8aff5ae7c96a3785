"""What a configuration of TensorFlow Serving says: the inspector reads its files, the gateway a caller's request, and
the console makes it so."""

from typing import Final

import msgspec

from signalbox.wire.messages import Doc

CONFIG: Final = "models.config"
BATCHING: Final = "batching.config"
"""Files in the folder that the inspector is given."""
MOST_FILE_BYTES: Final = 512 * 1024
"""Of one of them."""
MOST_MODELS: Final = 1000
"""Of a configuration."""


class ServingModel(Doc, frozen=True, kw_only=True):
    """One model. fields: names of all that is set. kind: ``tensorflow``, or what else was said.

    latest: how many versions, 0 = not said; specific: which; is_all: all of them; none of these: the latest one.
    """

    name: str
    base_path: str = ""
    kind: str = "tensorflow"
    fields: tuple[str, ...] = ()
    latest: int = 0
    specific: tuple[int, ...] = ()
    is_all: bool = False
    labels: dict[str, int] = msgspec.field(default_factory=dict)


class ServingBatching(Doc, frozen=True, kw_only=True):
    """Batching parameters, which are of all models; 0 = not said. fields: names of all that is set."""

    fields: tuple[str, ...] = ()
    max_batch_size: int = 0
    timeout_us: int = 0
    enqueued_batches: int = 0


class ServingConfig(Doc, frozen=True, kw_only=True):
    """Both files. batching: None where there is no such file."""

    models: tuple[ServingModel, ...] = ()
    batching: ServingBatching | None = None
