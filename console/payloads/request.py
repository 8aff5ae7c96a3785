"""What a job asked for, and the body that asks for the same again."""

from typing import Any, NamedTuple


class Request(NamedTuple):
    """What a job asked for."""

    job_id: str
    model: str
    version: int
    signature: str
    priority: str
    account_id: str

    @classmethod
    def of(cls, job: Any) -> "Request":
        """Of a row, a message or a record."""
        return cls(job.id, job.model, job.version, job.signature, job.priority, job.account_id)

    def body(self, inputs: Any) -> dict[str, Any]:
        """What ``POST /v1/jobs`` takes to run the same again. inputs: by name."""
        asked: dict[str, Any] = {"model": self.model, "version": self.version}
        if self.signature:
            asked["signature_name"] = self.signature
        return {**asked, "priority": self.priority, "input": inputs}
