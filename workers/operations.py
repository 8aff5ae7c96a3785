"""The gate for a SavedModel's operations: what reads files, speaks to others or runs code may not serve.

A gate and no proof: the runner's sandbox is what holds. Operations that TensorFlow itself does not
have (custom ones) are code nobody can judge from here and need a person's word.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from workers.protowire import number, single, submessages, text

_KNOWN_FILE: Final = Path(__file__).with_name("tensorflow_ops.txt")
"""Names in ``tf.raw_ops`` of the TensorFlow we install, one a line."""
_FORBIDDEN: Final = tuple((re.compile(pattern), why) for pattern, why in (
    (r"ReadFile|MatchingFiles(Dataset)?|WholeFileReader\w*|LoadAndRemapMatrix", "reads files"),
    (r"(TFRecord|TextLine|FixedLengthRecord|LMDB)(Reader|Dataset)\w*|RecordInput", "reads files"),
    (r"(CSV|Sql)Dataset\w*|LoadDataset|\w*Snapshot\w*Dataset\w*|SnapshotDatasetReader", "reads files"),
    (r"BigQueryReader|GenerateBigQueryReaderPartitions", "reads from the network"),
    (r"WriteFile|SaveDataset\w*|DatasetToTFRecord|Write\w*Summary|CreateSummary\w+Writer", "writes files"),
    (r"SummaryWriter|CalibrationStatisticsSaver|DistributedSave", "writes files"),
    (r"Debug(Identity|NanCount|NumericSummary)\w*", "sends tensors to files or addresses"),
    (r"PyFunc\w*|EagerPyFunc", "runs Python"),
    (r"LoadLibrary|FileSystemSetConfiguration|\w*TRT\w*", "loads code or changes the process"),
    (r"DatasetFromGraph|Remote\w+", "runs a graph that cannot be seen here"),
    (r"Rpc\w+|TryRpc|DataService\w*|RegisterDataset\w*|Collective\w+|Nccl\w+", "speaks to other machines"),
    (r"_?(Host)?(Send|Recv)|ConfigureDistributedTPU|ConfigureAndInitializeGlobalTPU", "speaks to other machines"),
))  # fmt: skip
_STORE: Final = re.compile(
    r"Save\w*|Restore\w*|MergeV2Checkpoints|Sharded(Filename|Filespec)|DTensorRestoreV2"
    r"|InitializeTableFromTextFile\w*|CacheDataset\w*"
)
"""Needed to load a model, or to store it while it is trained; never to answer a request."""
_PRINT_FILE: Final = "PrintV2 to a file"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """forbidden: kind of operation to what is wrong with it. unknown: kinds TensorFlow does not have."""

    forbidden: dict[str, str] = {}
    unknown: tuple[str, ...] = ()


class _Node(NamedTuple):
    """inputs: names of nodes. calls: names of functions, and of kinds, which may be functions' too."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    calls: tuple[str, ...]


class Operations(NamedTuple):
    """kinds: of every operation in the graph and its functions. serving: of those that a signature
    can reach, all of each function that it calls. functions: kinds that are the graph's own."""

    kinds: frozenset[str]
    serving: frozenset[str]
    functions: frozenset[str] = frozenset()

    @staticmethod
    def of(graph: memoryview) -> "Operations":
        """Of a MetaGraphDef. Raises :class:`IndexError` or :class:`TypeError` where it is damaged."""
        graph_def = single(graph, 2)
        main = list(_nodes(graph_def, 1))
        functions = _functions(single(graph_def, 2))
        every = [*main, *(node for nodes in functions.values() for node in nodes)]
        reached = [*_reached(_by_name(main), _outputs(graph)), *_served(graph)]
        called = _called(functions, reached)
        return Operations(
            frozenset(node.kind for node in every if node.kind),
            frozenset(node.kind for node in [*reached, *called] if node.kind),
            frozenset(functions),
        )


def judge(operations: Operations) -> Verdict:
    """What of these may not serve."""
    forbidden = {
        kind: why
        for kind in sorted(operations.kinds)
        for pattern, why in _FORBIDDEN
        if pattern.fullmatch(kind.removeprefix("Experimental"))
    }
    if _PRINT_FILE in operations.kinds:
        forbidden[_PRINT_FILE] = "writes files"
    for kind in sorted(operations.serving):
        if _STORE.fullmatch(kind):
            forbidden[kind] = "reads or writes files when a request is answered"
    unknown = operations.kinds - _known() - operations.functions - forbidden.keys()
    return Verdict(forbidden=forbidden, unknown=tuple(sorted(unknown)))


@functools.cache
def _known() -> frozenset[str]:
    return frozenset(_KNOWN_FILE.read_text().split())


def _functions(library: memoryview) -> dict[str, list[_Node]]:
    """Nodes by function. Of one that is there twice, both; its gradient counts as called where it is."""
    functions: dict[str, list[_Node]] = {}
    for function in submessages(library, 1):
        name = text(single(function, 1), 1)
        functions.setdefault(name, []).extend(_nodes(function, 3))
    for entry in submessages(library, 2):
        functions.setdefault(text(entry, 1), []).append(_call(text(entry, 2)))
    return functions


def _call(function: str) -> _Node:
    """A call that no node makes."""
    return _Node("", "", (), (function,))


def _nodes(message: memoryview, field: int) -> Iterator[_Node]:
    for node in submessages(message, field):
        kind = text(node, 2)
        calls = [kind]
        for entry in submessages(node, 5):
            value = single(entry, 2)
            calls += _function_names(value)
            if kind == "PrintV2" and text(entry, 1) == "output_stream" and _is_file(value):
                yield _Node("", _PRINT_FILE, (), ())
        inputs = tuple(
            bytes(name).decode().lstrip("^").partition(":")[0] for name in submessages(node, 3)
        )
        yield _Node(text(node, 1), kind, inputs, tuple(calls))


def _by_name(nodes: Iterable[_Node]) -> dict[str, _Node]:
    """Raises IndexError where two have one name: which of them is meant, only TensorFlow could say."""
    named: dict[str, _Node] = {}
    for node in nodes:
        if named.setdefault(node.name, node) is not node and node.name:
            raise IndexError(node.name)
    return named


def _function_names(value: memoryview) -> Iterator[str]:
    """Of an AttrValue: its func, those of its list, and those that are handed to these as attributes."""
    left = [value]
    while left:
        value = left.pop()
        for func in (*submessages(value, 10), *submessages(single(value, 1), 9)):
            yield text(func, 1)
            left += (single(entry, 2) for entry in submessages(func, 2))


def _is_file(value: memoryview) -> bool:
    return text(value, 2).startswith("file:")


def _outputs(graph: memoryview) -> Iterator[str]:
    """Names of the nodes that the signatures' outputs come from."""
    for entry in submessages(graph, 5):
        if text(entry, 1).startswith("__"):
            continue  # what TensorFlow runs once, when it loads
        for output in submessages(single(entry, 2), 2):
            info = single(output, 2)
            sparse, composite = single(info, 4), single(info, 5)
            names = [text(info, 1), *(text(sparse, at) for at in (1, 2, 3))]
            names += (text(part, 1) for part in submessages(composite, 2))
            yield from (name.partition(":")[0] for name in names if name)


def _served(graph: memoryview) -> Iterator[_Node]:
    """Calls of what TensorFlow 2 serves, whatever the graph's own signatures say: the functions below
    ``signatures`` in the graph of objects.
    """
    objects = list(submessages(single(graph, 7), 1))
    maps = [child for each in objects for child, name in _children(each) if name == "signatures"]
    for child in {child for at in maps for child, _ in _children(objects[at])}:
        for function in submessages(single(objects[child], 6), 1):
            yield _call(bytes(function).decode())
        if name := text(single(objects[child], 8), 1):
            yield _call(name)


def _children(each: memoryview) -> Iterator[tuple[int, str]]:
    """(place in the graph of objects, name) of what a SavedObject refers to."""
    return ((number(child, 1), text(child, 2)) for child in submessages(each, 1))


def _reached(nodes: Mapping[str, _Node], start: Iterable[str]) -> Iterator[_Node]:
    left, seen = list(start), set[str]()
    while left:
        name = left.pop()
        if name not in seen and name in nodes:
            seen.add(name)
            yield nodes[name]
            left += nodes[name].inputs


def _called(functions: Mapping[str, list[_Node]], start: Iterable[_Node]) -> Iterator[_Node]:
    """Every node of the functions that ``start`` calls, and of those that these call."""
    left, seen = [name for node in start for name in node.calls], set[str]()
    while left:
        name = left.pop()
        if name not in seen and name in functions:
            seen.add(name)
            for node in functions[name]:
                yield node
                left += node.calls
