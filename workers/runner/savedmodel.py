"""Reads a SavedModel's signatures and contents without running any of it, and without TensorFlow.

Walks the protobuf wire format of ``saved_model.pb`` for the few fields we need; field numbers are
those of TensorFlow's saved_model.proto, meta_graph.proto, tensor_shape.proto and types.proto.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program.errors import InvalidRequest
from signalbox.repositories.triton import TritonConfig
from signalbox.wire.modeldocs import Signature, TensorSpec
from workers.runner import completeness
from workers.runner.operations import OperationFindings, Operations, judge, rules
from workers.runner.protowire import number, single, submessages, text

FILE: Final = "saved_model.pb"
DTYPE_OF: Final[dict[int, str]] = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
"""Number in types.proto to the name on our wire; what is missing cannot travel."""
_KINDS: Final = {1: "sparse", 3: "ragged"}
"""TypeSpecClass in struct.proto to the name on our wire."""
SERVE: Final = "serve"
_SHOWN: Final = 200
MOST_DEFAULTS_BYTES: Final = 1 << 16
"""Of all signatures together: they are in the document that every gateway keeps. Larger ones have to be sent."""
_CHUNK_BYTES: Final = 1 << 20
_NONE_KNOWN: Final[Mapping[str, str]] = {}


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """signatures: those of the graph that is served. ops: every kind of operation in it, sorted.
    verdict: which of them may not serve. digest: sha256 over path, size and sha256 of each file.
    size_bytes: of all files. rules: see :func:`workers.runner.operations.rules`."""

    signatures: dict[str, Signature]
    ops: tuple[str, ...]
    verdict: OperationFindings
    size_bytes: int
    digest: str
    rules: str = ""


class GraphFindings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``saved_model.pb`` says by itself. name: of its folder. restores: the graph has variables to restore.
    assets: files that it names, below ``assets``. error: why it is refused, empty where it is not. config: what the
    ``config.pbtxt`` beside it says, if there is one; config_error: why that is refused."""

    name: str
    signatures: dict[str, Signature] = {}
    verdict: OperationFindings = OperationFindings()
    rules: str = ""
    restores: bool = False
    assets: tuple[str, ...] = ()
    error: str = ""
    config: TritonConfig | None = None
    config_error: str = ""


def inspect(directory: Path) -> Inspection:
    """All of it.

    Raises :class:`InvalidRequest` where ``directory`` holds no readable SavedModel or not all of its files, or they
    change meanwhile.
    """
    with suppress(FileNotFoundError):  # what was there a moment ago
        before = completeness.facts(directory)
        found = _inspected(directory)
        if completeness.facts(directory) == before:
            return found
    raise InvalidRequest(
        "The files change while they are inspected. Wait until all are copied, then register the version again."
    )


def _inspected(directory: Path) -> Inspection:
    with _graph(directory) as graph:
        signatures, operations = _contents(graph)
        completeness.require_whole(directory, graph)
        size, digest = manifest(directory)
        return Inspection(
            signatures=signatures,
            ops=tuple(sorted(operations.kinds)),
            verdict=judge(operations),
            size_bytes=size,
            digest=digest,
            rules=rules(),
        )


def inspect_graph(directory: Path, name: str) -> GraphFindings:
    """What the graph in ``directory`` says, whatever lies beside it. Raises :class:`InvalidRequest`."""
    with _graph(directory) as graph:
        signatures, operations = _contents(graph)
        restores, assets = completeness.named(graph)
        return GraphFindings(
            name=name,
            signatures=signatures,
            verdict=judge(operations),
            rules=rules(),
            restores=restores,
            assets=assets,
        )


def read(directory: Path) -> tuple[dict[str, Signature], Operations]:
    """Signatures and operations. Raises :class:`InvalidRequest`."""
    with _graph(directory) as graph:
        return _contents(graph)


def served(directory: Path) -> tuple[memoryview, dict[str, Signature]]:
    """The MetaGraphDef that is served, and its signatures. Raises :class:`InvalidRequest`."""
    with _graph(directory) as graph:
        return graph, dict(_signatures(graph))


def manifest(
    directory: Path, known: Mapping[str, str] = _NONE_KNOWN, *, check: Callable[[], object] = bool
) -> tuple[int, str]:
    """(bytes in all files, digest of the manifest). Two directories with equal files are equal.

    known: sha256 by path of files that need not be read. check: called for each MiB that is read; what it raises ends
    the reading.
    """
    whole, total = hashlib.sha256(), 0
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name, size = path.relative_to(directory).as_posix(), path.stat().st_size
        total += size
        whole.update(f"{name}\0{size}\0{known.get(name) or _sha256(path, check)}\n".encode())
    return total, whole.hexdigest()


def _sha256(path: Path, check: Callable[[], object]) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            check()
            found.update(chunk)
    return found.hexdigest()


@contextmanager
def _graph(directory: Path) -> Iterator[memoryview]:
    """The graph that serves. Raises :class:`InvalidRequest`, also where it turns out damaged inside the context."""
    path = directory / FILE
    try:
        data = memoryview(path.read_bytes())
    except OSError as error:
        msg = f"{FILE} cannot be read: {error.strerror}."
        raise InvalidRequest(msg, path=str(path)) from error
    try:
        yield _serving_graph(data)
    except (IndexError, TypeError, UnicodeDecodeError) as error:
        msg = f"{FILE} is damaged, cut short, or no SavedModel."
        raise InvalidRequest(msg, path=str(path)) from error


def _contents(graph: memoryview) -> tuple[dict[str, Signature], Operations]:
    return dict(_signatures(graph)), Operations.of(graph)


def _serving_graph(data: memoryview) -> memoryview:
    """The first graph whose tags are ``serve`` and no other, as TensorFlow Serving chooses."""
    found = []
    for graph in submessages(data, 2):  # SavedModel.meta_graphs
        tags = {bytes(tag).decode() for tag in submessages(single(graph, 1), 4)}
        if tags == {SERVE}:
            return graph
        found.append(", ".join(sorted(tags)) or "nothing")
    tagged = f" Its graphs are tagged: {'; '.join(found)[:_SHOWN]}." if found else ""
    msg = f"The SavedModel has no graph tagged {SERVE!r} and nothing else.{tagged}"
    raise InvalidRequest(msg)


def _signatures(graph: memoryview) -> Iterator[tuple[str, Signature]]:
    room = MOST_DEFAULTS_BYTES
    for entry in submessages(graph, 5):  # MetaGraphDef.signature_def, a map
        body = single(entry, 2)
        inputs, outputs = dict(_specs(body, 1)), dict(_specs(body, 2))
        defaults = {text(each, 1): bytes(single(each, 2)) for each in submessages(body, 4)}
        room -= sum(map(len, defaults.values()))
        if room < 0 or not inputs.keys() >= defaults.keys():
            defaults = {}
        yield text(entry, 1), Signature(inputs=inputs, outputs=outputs, method=text(body, 3), defaults=defaults)


def _specs(body: memoryview, field: int) -> Iterator[tuple[str, TensorSpec]]:
    for entry in submessages(body, field):
        info = single(entry, 2)
        kind, dtype, parts = _composition(info)
        dtype = number(info, 2) or dtype
        spec = TensorSpec(
            dtype=DTYPE_OF.get(dtype, f"unsupported:{dtype}"),
            shape=_shape(info),
            tensor=text(info, 1),
            kind=kind,
            parts=parts,
        )
        yield text(entry, 1), spec


def _composition(info: memoryview) -> tuple[str, int, tuple[str, ...]]:
    """(kind, number of the values' dtype where the parts say it, names of the parts); of a dense tensor nothing."""
    for sparse in submessages(info, 4):
        return "sparse", 0, (text(sparse, 1), text(sparse, 2), text(sparse, 3))
    for composite in submessages(info, 5):
        parts = list(submessages(composite, 2))
        kind = _KINDS.get(number(single(composite, 1), 1), "composite")
        return kind, number(parts[0], 2) if parts else 0, tuple(text(part, 1) for part in parts)
    return "", 0, ()


def _shape(info: memoryview) -> tuple[int, ...] | None:
    shape = single(info, 3)
    is_known = any(True for _ in submessages(info, 3)) and not number(shape, 3)  # unknown_rank
    return tuple(_size(dim) for dim in submessages(shape, 2)) if is_known else None


def _size(dim: memoryview) -> int:
    value = number(dim, 1)
    return value - (1 << 64) if value >> 63 else value
