"""What a request asks for: an operation and its target, as the routing of each dialect says it."""

from enum import StrEnum
from typing import Final, NamedTuple

from gateway_plugin.codec.forms import Form

_FORMS: Final = {
    "tfs_predict": Form.PREDICT,
    "tfs_classify": Form.CLASSIFY,
    "tfs_regress": Form.REGRESS,
    "submit": Form.JOB,
}


class Operation(StrEnum):
    """What a request asks the plugin to do."""

    TFS_PREDICT = "tfs_predict"
    TFS_CLASSIFY = "tfs_classify"
    TFS_REGRESS = "tfs_regress"
    TFS_STATUS = "tfs_status"
    TFS_METADATA = "tfs_metadata"
    TFS_METRICS = "tfs_metrics"
    TFS_PREFLIGHT = "tfs_preflight"
    LIST_MODELS = "list_models"
    SUBMIT = "submit"
    READ_JOB = "read_job"
    CANCEL_JOB = "cancel_job"

    form: Form | None
    """What the body of a submission is; None where the operation submits nothing."""

    def __init__(self, value: str) -> None:
        self.form = _FORMS.get(value)


class Route(NamedTuple):
    """The operation of a request and its target. At most one of ``version`` and ``label`` is given."""

    operation: Operation
    model: str = ""
    version: int | None = None
    label: str | None = None
    job_id: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts by which targets of submissions differ; an Idempotency-Key is bound to them."""
        return self.operation, self.model, str(self.version), str(self.label)
