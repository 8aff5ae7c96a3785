"""Documents of models: what the console decided about one, and which versions requests get."""

from msgspec import field

from signalbox.wire.messages import Doc
from signalbox.wire.splits import Split
from signalbox.wire.warmups import WarmUp


class TensorSpec(Doc, frozen=True, kw_only=True):
    """An input or output of a signature. shape: -1 is any size; None is unknown rank.

    tensor: its name in the graph; empty = it is no dense tensor. kind: what it is then: ``sparse``, ``ragged`` or
    ``composite``. parts: names in the graph of the tensors that it is made of; of a sparse one values, indices and
    shape. dtype: that of its values.
    """

    dtype: str
    shape: tuple[int, ...] | None
    tensor: str = ""
    kind: str = ""
    parts: tuple[str, ...] = ()


class Signature(Doc, frozen=True, kw_only=True):
    """A named signature of a SavedModel.

    defaults: of inputs that a call over TensorFlow Serving's gRPC API may leave out, as TensorProto messages.
    """

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    method: str = "tensorflow/serving/predict"
    defaults: dict[str, bytes] = field(default_factory=dict)

    @property
    def has_rows(self) -> bool:
        """Whether all tensors are dense with a free dimension 0: it counts rows, and requests can share a run."""
        specs = (*self.inputs.values(), *self.outputs.values())
        return bool(self.inputs) and all(spec.shape and spec.shape[0] == -1 and not spec.kind for spec in specs)


class Version(Doc, frozen=True, kw_only=True):
    """One immutable version. path: directory that holds ``saved_model.pb`` on every worker, or, of a repository in an
    object store, the URL of that folder. repository: name of the one that brought it, empty = a person.

    digest: sha256 over its files; empty = what ``digests`` has of it, which the first host with all its bytes writes.
    signatures: those that begin with two underscores are TensorFlow's own, such as an initializer.
    joined: the signatures whose requests were found to get the same answers joined as alone, None = not tried yet.
    """

    version: int
    path: str
    repository: str = ""
    digest: str = ""
    size_bytes: int = 0
    signatures: dict[str, Signature] = field(default_factory=dict)
    joined: tuple[str, ...] | None = None


class Batching(Doc, frozen=True, kw_only=True):
    """max_size: rows in one run (1 = no batching). max_delay_ms: longest a job waits for others to run with.

    rows_independent: the model's owner has said that the answer of a row depends on that row alone. Requests are joined
    only then, and only of versions where a worker has found the same (:class:`signalbox.wire.workerdocs.Joining`).
    """

    max_size: int = 32
    max_delay_ms: float = 0.0
    rows_independent: bool = False


class Limits(Doc, frozen=True, kw_only=True):
    """Per-model limits, with their defaults.

    max_delivery: attempts before a dead letter. timeout_s: one run. deadline_s: until the run starts.
    sync_wait_s: how long a synchronous caller is kept. max_queue: waiting jobs before 429.
    max_payload_bytes: decoded inputs of one job.
    """

    max_delivery: int = 5
    timeout_s: float = 60.0
    deadline_s: float = 900.0
    sync_wait_s: float = 30.0
    max_queue: int = 10_000
    max_payload_bytes: int = 64 * 1024 * 1024


class Access(Doc, frozen=True, kw_only=True):
    """Who may call a model whose key does not name it. is_open: everybody. accounts: these, otherwise.

    A key whose own list has the model, by name or by a prefix, may always.
    """

    is_open: bool = True
    accounts: tuple[str, ...] = ()


class Model(Doc, frozen=True, kw_only=True):
    """KV ``models``: what the console decided about one model. Key: ``token(name)``.

    versions: those that may serve. default_version: what a request without version or label gets.
    replicas: GPUs it shall be resident on; 0 = refuse with the reason. warm_ups: run after a load, where they fit the
    version (:func:`signalbox.wire.signatures.misfit`). splits: one of a default or label at most.
    """

    name: str
    is_enabled: bool = True
    versions: tuple[Version, ...] = ()
    default_version: int | None = None
    labels: dict[str, int] = field(default_factory=dict)
    replicas: int = 1
    batching: Batching = Batching()
    limits: Limits = Limits()
    access: Access = Access()
    warm_ups: tuple[WarmUp, ...] = ()
    splits: tuple[Split, ...] = ()
    updated_at: float = 0.0


class Serving(Doc, frozen=True, kw_only=True):
    """KV ``serving``: the versions that requests of one model get now. Key: ``token(model)``.

    What they shall get stands in ``models``; :mod:`signalbox.wire.rollout` says when the one becomes the other. Written
    by gateways, by compare-and-set. publication, published_at: revision and ``updated_at`` of the ``models``
    document it was decided from; a gateway that knows an older one decides nothing. default: for requests without
    version or label, None = the model has no version. labels: for requests by label. failed: versions whose load
    failed since that publication. candidates: of splits, those that are ready on every device that serves the model.
    """

    publication: int
    published_at: float = 0.0
    default: int | None = None
    labels: dict[str, int] = field(default_factory=dict)
    failed: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
