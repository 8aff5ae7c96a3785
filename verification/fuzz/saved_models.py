"""``saved_model.pb`` files: whatever comes is read or refused in our words, in time."""

import atexit
import shutil
import tempfile
from collections.abc import Hashable
from pathlib import Path
from typing import Final

from signalbox.program.errors import InvalidRequest
from workers.runner import savedmodel
from workers.runner.operations import judge

SEEDS: Final = Path(__file__).parent / "corpus" / "saved_models"
SHARE: Final = 1_500
TOKENS: Final = (
    b"serve",
    b"serving_default",
    b"ReadFile",
    b"PrintV2",
    b"output_stream",
    b"file://",
    b"SaveV2",
    b"PartitionedCall",
    b"\x12\x00",
    b"\x0a\xff\xff\xff\xff\x0f",
    b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
)
_FOLDER: Final = Path(tempfile.mkdtemp(prefix="signalbox-fuzz-models-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def one(data: bytes) -> Hashable:
    """One file."""
    (_FOLDER / savedmodel.FILE).write_bytes(data)
    try:
        signatures, operations = savedmodel.read(_FOLDER)
    except InvalidRequest as error:
        return str(error)[:40]
    assert operations.serving <= operations.kinds | {""}
    verdict = judge(operations)
    return (min(len(signatures), 2), len(verdict.forbidden), min(len(verdict.unknown), 3))
