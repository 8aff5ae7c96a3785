"""Which models' requests may be joined, found by trying; the models are functions of arrays."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest

from signalbox.program.errors import InvalidInput, OutOfMemory
from signalbox.wire import tensors
from signalbox.wire.modeldocs import Signature, TensorSpec
from workers.runner.arrays import Output, array_of
from workers.runner.joining import Findings, Run, tried

Compute = Callable[..., Any]
DICE = np.random.default_rng(1)


def signature(*, y: tuple[str, tuple[int, ...]] = ("float32", (-1,)), **inputs: tuple[str, tuple[int, ...]]) -> Any:
    specs = {name: TensorSpec(dtype=dtype, shape=shape) for name, (dtype, shape) in inputs.items()}
    return Signature(inputs=specs, outputs={"y": TensorSpec(dtype=y[0], shape=y[1])})


def running(compute: Compute, dtype: str = "float32") -> Run:
    def run(_: str, frame: bytes) -> bytes:
        found = compute(**{one.name: array_of(one) for one in tensors.decode(frame)})
        return tensors.encode([Output.of("y", dtype, found).tensor("y")])

    return run


def texts(*rows: bytes) -> bytes:
    return tensors.encode([Output.of("text", "string", np.array(rows, dtype=object)).tensor("text")])


def look(
    compute: Compute, given: Signature, dtype: str = "float32", samples: Sequence[tuple[str, bytes]] = ()
) -> Findings:
    return tried({"s": given}, samples, running(compute, dtype), seconds=60.0)


WIDTH = signature(x=("float32", (-1, 4)), y=("float32", (-1, 4)))
TEXT = signature(text=("string", (-1,)))


def padded(text: Any) -> Any:
    """A tokenizer: each text's lengths of words, padded to the longest text, and their mean."""
    words = [[len(word) for word in one.split()] for one in text]
    longest = max(map(len, words))
    return np.array([sum(one) / longest for one in words])


def dense(text: Any) -> Any:
    """Sparse features made dense: as wide as the widest row."""
    features = [[len(word) for word in one.split()] for one in text]
    widest = max(map(len, features))
    return np.array([one + [0] * (widest - len(one)) for one in features], dtype=np.float32)


def scores(x: Any) -> Any:
    exponents = np.exp(x.sum(axis=1) - x.sum(axis=1).max())
    return exponents / exponents.sum()


def distances(x: Any) -> Any:
    return np.sqrt(((x[:, None] - x[None, :]) ** 2).sum(axis=2))


@pytest.mark.parametrize(
    ("compute", "given", "words"),
    [
        (lambda x: x - x.mean(axis=0), WIDTH, 'output "y" differs by up to'),
        (lambda x: x - x.mean(), signature(x=("float32", (-1,))), 'output "y" differs by up to'),
        (distances, signature(x=("float32", (-1, 4)), y=("float32", (-1, -1))), "has shape [1, 6] and not [1, 1]"),
        (scores, signature(x=("float32", (-1, 4))), "differs by up to"),
        (padded, TEXT, "differs by up to"),
        (dense, signature(text=("string", (-1,)), y=("float32", (-1, -1))), "has shape [1, 30] and not [1, 1]"),
        (lambda x: x.sum(keepdims=True), signature(x=("float32", (-1,))), "has no row for each row"),
        (lambda x: x.sum(), signature(x=("float32", (-1,))), "has no row for each row"),
    ],
    ids=["mean of columns", "mean", "distances", "scores", "padded texts", "sparse made dense", "total", "scalar"],
)
def test_rows_that_depend_on_one_another_are_found(compute: Compute, given: Signature, words: str) -> None:
    found = look(compute, given)
    assert found.joined == ()
    assert found.differs.startswith('Signature "s": joined')
    assert words in found.differs


def test_integers_that_depend_on_the_other_rows_differ_in_number() -> None:
    found = look(lambda x: np.argsort(np.argsort(x)), signature(x=("float32", (-1,)), y=("int64", (-1,))), "int64")
    assert 'joined with other requests, output "y" differs in ' in found.differs


WEIGHTS = [DICE.normal(size=size).astype(np.float32) for size in ((16, 32), (32, 3))]


def noisy(x: Any) -> Any:
    """Another algorithm for another batch size: the last digits differ."""
    return (x @ WEIGHTS[0]) * np.float32(1 + 5e-6 * len(x))


def logarithm(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.log(x)


@pytest.mark.parametrize(
    ("compute", "given", "dtype"),
    [
        (lambda x: x / 2 + 2, signature(x=("float32", (-1,))), "float32"),
        (lambda x: np.maximum(x @ WEIGHTS[0], 0) @ WEIGHTS[1], signature(x=("float32", (-1, 16))), "float32"),
        (noisy, signature(x=("float32", (-1, 16))), "float32"),
        (logarithm, signature(x=("float32", (-1, -1))), "float32"),
        (lambda x: x.argmax(axis=1), signature(x=("float32", (-1, 8))), "int64"),
        (lambda x: x * np.complex64(1j), signature(x=("complex64", (-1,))), "complex64"),
        (lambda x: x / np.float16(3), signature(x=("float16", (-1,))), "float16"),
        (lambda text: np.array([one.upper() for one in text], dtype=object), TEXT, "string"),
        (
            lambda ids, mask: (ids * mask).sum(axis=1),
            signature(ids=("int64", (-1, -1)), mask=("bool", (-1, -1))),
            "int64",
        ),
    ],
    ids=["half plus two", "mlp", "noisy", "logarithm", "argmax", "complex", "half", "texts", "ids"],
)
def test_independent_rows_are_found_equal(compute: Compute, given: Signature, dtype: str) -> None:
    assert look(compute, given, dtype) == Findings(("s",))


def test_a_signature_that_is_not_deterministic_is_refused_by_name() -> None:
    found = look(lambda x: x + DICE.random(x.shape), signature(x=("float32", (-1,))))
    assert found.differs.startswith('Signature "s": it is not deterministic: asked again alone, output "y" differs')


def test_one_signature_that_differs_refuses_all_and_one_that_cannot_be_tried_only_itself() -> None:
    given = signature(x=("float32", (-1,)))

    def run(name: str, frame: bytes) -> bytes:
        if name == "refuses":
            raise InvalidInput("Could not parse example input")
        return running((lambda x: x - x.mean()) if name == "mean" else (lambda x: x / 2))("", frame)

    two = {"half": given, "refuses": given, "__init": given, "alone": signature(x=("float32", (1,)))}
    found = tried({"half": given, "refuses": given, "alone": signature(x=("float32", (1,)))}, (), run, seconds=60.0)
    assert (found.joined, found.differs) == (("half",), "")
    assert found.untried == (
        'Signature "refuses": nothing is shown by made-up inputs (Could not parse example input);'
        " add two or more unlike warm-up requests, to be tried too."
    )
    assert tried({**two, "mean": given}, (), run, seconds=60.0).joined == ()


def small(ids: Any) -> Any:
    if ids.max() > 1:
        raise InvalidInput("indices[0] = 7 is not in [0, 2)")
    return ids * 3


def positive(x: Any) -> Any:
    if x.min() < 0:
        raise InvalidInput("assertion failed")
    return np.sqrt(x)


def wide(x: Any) -> Any:
    if x.shape[1] < 32:
        raise InvalidInput("Negative dimension size")
    return x[:, 31]


@pytest.mark.parametrize(
    ("compute", "given"),
    [
        (small, signature(ids=("int32", (-1, 4)))),
        (positive, signature(x=("float32", (-1,)))),
        (wide, signature(x=("float32", (-1, -1)))),
    ],
)
def test_inputs_that_are_refused_are_tried_smaller_or_larger(compute: Compute, given: Signature) -> None:
    assert look(compute, given).joined == ("s",)


def coded(text: Any) -> Any:
    if not all(one.startswith(b"{") for one in text):
        raise InvalidInput("no JSON")
    return np.array([len(one) for one in text], dtype=np.float32)


def test_warm_up_requests_are_tried_where_made_up_inputs_are_refused() -> None:
    def with_samples(compute: Compute, *frames: bytes) -> Findings:
        return look(compute, TEXT, samples=[("s", frame) for frame in frames])

    assert with_samples(coded, texts(b"{}"), texts(b"{1}", b"{12}")) == Findings(("s",))
    assert with_samples(coded, texts(b"{}", b"{1}", b"{12}")) == Findings(("s",)), "its first row, and the others"
    for useless in ((), (texts(b"{}"),), (texts(b"{}"), texts(b"{}")), (texts(b"{}", b"{}"),)):
        found = with_samples(coded, *useless)
        assert "no JSON" in found.untried
        assert found.joined == ()
    unlike = (texts(b"{1}"), texts(b"{12}"))
    assert with_samples(lambda text: coded(text) / len(text), *unlike).differs


def test_warm_up_requests_refuse_what_made_up_inputs_do_not_show() -> None:
    def known(text: Any) -> Any:
        return np.array([len(text) if one.startswith(b"{") else len(one) for one in text], dtype=np.float32)

    assert look(known, TEXT).joined == ("s",)
    assert look(known, TEXT, samples=[("s", texts(b"{1}")), ("s", texts(b"{12}"))]).differs


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        (lambda x: np.full_like(x, 3), "all rows get the same answer"),
        (lambda x: x * np.float32(np.nan), "all rows get the same answer"),
    ],
)
def test_answers_that_are_all_alike_show_nothing(compute: Compute, words: str) -> None:
    found = look(compute, signature(x=("float32", (-1,))))
    assert words in found.untried
    assert not found.joined


def test_a_trial_that_takes_too_long_or_too_much_memory_shows_nothing() -> None:
    given = signature(x=("float32", (-1,)))
    seconds = count()
    slow = tried({"s": given}, (), running(lambda x: x), seconds=3.0, clock=lambda: float(next(seconds)))
    assert slow == Findings(untried='Signature "s": the trial took longer than 3 s.')

    def greedy(x: Any) -> Any:
        if len(x) > 3:
            raise OutOfMemory
        return x

    found = look(greedy, given)
    assert (found.joined, found.differs, "the memory is used up" in found.untried) == ((), "", True)


def test_only_signatures_that_count_rows_are_tried_and_rows_too_large_for_a_batch_are_not() -> None:
    def never(_: str, __: bytes) -> bytes:
        raise AssertionError

    def found(given: Signature) -> Findings:
        return tried({"s": given}, (), never, seconds=60.0)

    assert "there is nothing to join" in found(signature(x=("float32", (1, 4)))).untried
    assert "there is nothing to join" in found(signature(x=("float32", (-1,)), y=("resource", (-1,)))).untried
    assert "no two of its rows" in found(signature(x=("float32", (-1, 1 << 24)))).untried
