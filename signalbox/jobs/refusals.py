"""Why an ended job cannot be run again, in words for whoever asked."""

from datetime import UTC, datetime

from signalbox.wire.messages import State


def why_no_input(state: State, code: str, finished_at: float | None) -> str:
    """Why nothing is left of an ended job's input, which has no dead letter. code: of its error. finished_at: UTC s."""
    since = ""
    if finished_at is not None:
        since = f" It is gone since {datetime.fromtimestamp(finished_at, UTC):%Y-%m-%d %H:%M:%S} UTC."
    if state is State.SUCCEEDED:
        return f"The job succeeded, and inputs are kept of jobs that were given up alone.{since}"
    return (
        f"The job {state} ({code or 'without an error'}), and its input was not kept: it was not given up after several"
        f" attempts, or its dead letter is there no longer.{since}"
    )
