"""Results as archives of numpy's: what numpy reads from them."""

import io
import struct

import numpy as np
import pytest

from gateway_plugin.codec.archive import npz
from signalbox.program.errors import InvalidRequest, ResultTooLarge
from signalbox.wire.tensors import Tensor


def strings(*items: bytes, name: str = "s") -> Tensor:
    return Tensor(name, "string", (len(items),), b"".join(struct.pack("<I", len(item)) + item for item in items))


def test_numpy_reads_each_output_with_its_dtype_and_shape() -> None:
    whole, half = np.arange(6, dtype="<i8").reshape(2, 3), np.array([1.0, -2.5], "<f4")
    bits = (half.view("<u4") >> 16).astype("<u2")
    outputs = [
        Tensor("deep/y", "int64", (2, 3), whole.tobytes()),
        Tensor("b", "bfloat16", (2,), bits.tobytes()),
        Tensor("c", "complex64", (), np.array(1 + 2j, "<c8").tobytes()),
        Tensor("none", "float32", (0, 4), b""),
        strings(b"a", b"\0long", b""),
    ]
    written = npz(outputs, 100)
    assert written == npz(outputs, 100)
    read = np.load(io.BytesIO(written), allow_pickle=False)
    assert list(read) == ["deep/y", "b", "c", "none", "s"]
    assert read["deep/y"].dtype == whole.dtype
    assert (read["deep/y"] == whole).all()
    assert read["b"].tolist() == [1.0, -2.5]
    assert (read["c"].shape, complex(read["c"])) == ((), 1 + 2j)
    assert read["none"].shape == (0, 4)
    assert read["s"].tolist() == [b"a", b"\0long", b""]


def test_one_long_string_among_many_does_not_make_a_large_array() -> None:
    with pytest.raises(ResultTooLarge):
        npz([strings(b"x" * 90, b"", b"")], 200)


def test_a_string_that_numpy_would_cut_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="zero byte"):
        npz([strings(b"a\0")], 200)
