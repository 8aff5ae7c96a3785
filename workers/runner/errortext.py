"""A model's error text as a caller may see it: without the paths of this machine."""

import re
from typing import Final

_DEVICE: Final = r"(?:/(?:job:[\w-]+|replica:\d+|task:\d+|(?:device:\w+|cpu|gpu):(?:\d+|\*)))+(?![\w/])"
"""TensorFlow's name of a device, whole or in part: ``/job:worker/replica:0/task:0/device:GPU:0``, ``/gpu:0``."""
_QUOTED: Final = re.compile(rf"""(["'`])(?!{_DEVICE}\1)(?:[a-z][a-z0-9+.-]*:/{{1,3}}|~?/)[^"'`\n]*\1""", re.IGNORECASE)
"""A path in quotation marks, which may hold spaces."""
_BARE: Final = re.compile(
    rf"(?!{_DEVICE})(?:\b(?:file|ram):/{{1,3}}|(?<![\w/.\])}}])~?/|(?<![\w/.\])}}:])//)"
    r"[\w.~+@%{-][^\s\"'`,;:)\]}|]*",
    re.IGNORECASE,
)
"""A path on its own; not what follows a word, as in ``dense/MatMul``, ``1/2`` or ``https://host/page``."""
_STANDS_FOR: Final = "<path>"


def without_paths(text: str) -> str:
    """``text`` with every absolute path of a file in it replaced."""
    return _BARE.sub(_STANDS_FOR, _QUOTED.sub(_STANDS_FOR, text))
