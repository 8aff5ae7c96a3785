"""How much one job's result may be."""

from typing import Final

from signalbox.program.errors import ResultTooLarge

MAX_RESULT_BYTES: Final = 256 * 1024 * 1024


def within(frame: bytes, most: int) -> bytes | ResultTooLarge:
    """A result's frame, or what the job fails with where it has more than ``most`` bytes."""
    if len(frame) <= most:
        return frame
    return ResultTooLarge(
        f"The result takes {len(frame)} bytes; at most {most} are kept of one job. Send fewer rows at once, or have "
        "the model give out less.",
        bound="result",
    )
