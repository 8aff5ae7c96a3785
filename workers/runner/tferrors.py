"""Maps TensorFlow's errors to those of Signalbox: the cause of each, and its one informative line."""

import re
from collections.abc import Callable
from typing import Final, TypeVar

import tensorflow as tf

from signalbox.program import errors

T = TypeVar("T")
_DEVICE_FAILED: Final = re.compile(r"CUDA|CUDNN|CUBLAS|GPU sync failed|\bXid\b", re.IGNORECASE)
_NOISE: Final = ("Graph execution error", "Detected at", "<stack traces", "File ", "[[", "Traceback")
_SUMMARY: Final = re.compile(r"\d+ root error\(s\) found\.")
_AROUND: Final = re.compile(r"^\(\d+\) [A-Z_]+: |\{\{function_node [^}]*\}\} ")
"""What stands around a message that is one of several, or of a function's node."""


def translated(act: Callable[[], T]) -> T:
    """``act()``, with TensorFlow's errors made ours."""
    try:
        return act()
    except tf.errors.ResourceExhaustedError as error:
        raise errors.OutOfMemory(brief(error)) from error
    except tf.errors.InvalidArgumentError as error:
        raise errors.InvalidInput(brief(error)) from error
    except tf.errors.OpError as error:
        if _is_of_the_device(error):
            raise errors.RunnerCrashed(brief(error)) from error  # a CUDA context does not recover
        raise errors.ModelError(brief(error)) from error
    except (TypeError, ValueError, KeyError) as error:
        raise errors.InvalidInput(brief(error)) from error
    except (OSError, AttributeError, RuntimeError) as error:
        raise errors.ModelError(brief(error)) from error


def _is_of_the_device(error: Exception) -> bool:
    """Whether the GPU or its libraries failed, not the model. InvalidArgument and the like never are."""
    kinds = (
        tf.errors.InternalError,
        tf.errors.AbortedError,
        tf.errors.DataLossError,
        tf.errors.UnknownError,
        tf.errors.UnavailableError,
        tf.errors.FailedPreconditionError,
    )
    return isinstance(error, kinds) and _DEVICE_FAILED.search(str(error)) is not None


def brief(error: Exception) -> str:
    """First line that says something, without TensorFlow's graph trace. The supervisor takes our paths out of it."""
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(_NOISE) and not _SUMMARY.fullmatch(line)]
    first = (useful or lines or [type(error).__name__])[0]
    return _AROUND.sub("", first)[:500]
