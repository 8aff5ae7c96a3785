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

from workers.protowire import submessages, text

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
        main: dict[str, _Node] = {}
        functions: dict[str, list[_Node]] = {}
        for graph_def in submessages(graph, 2):
            main |= {node.name: node for node in _nodes(graph_def, 1)}
            for library in submessages(graph_def, 2):
                for function in submessages(library, 1):
                    name = next((text(head, 1) for head in submessages(function, 1)), "")
                    functions[name] = list(_nodes(function, 3))
        every = [*main.values(), *(node for nodes in functions.values() for node in nodes)]
        reached = list(_reached(main, _outputs(graph)))
        called = _called(functions, reached)
        return Operations(
            frozenset(node.kind for node in every),
            frozenset(node.kind for node in [*reached, *called]),
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


def _nodes(message: memoryview, field: int) -> Iterator[_Node]:
    for node in submessages(message, field):
        kind = text(node, 2)
        calls = [kind]
        for entry in submessages(node, 5):
            for value in submessages(entry, 2):
                calls += _function_names(value)
                if kind == "PrintV2" and text(entry, 1) == "output_stream" and _is_file(value):
                    yield _Node("", _PRINT_FILE, (), ())
        inputs = tuple(
            bytes(name).decode().lstrip("^").partition(":")[0] for name in submessages(node, 3)
        )
        yield _Node(text(node, 1), kind, inputs, tuple(calls))


def _function_names(value: memoryview) -> Iterator[str]:
    """Of an AttrValue: its func, or those of its list."""
    for func in submessages(value, 10):
        yield text(func, 1)
    for several in submessages(value, 1):
        for func in submessages(several, 9):
            yield text(func, 1)


def _is_file(value: memoryview) -> bool:
    return text(value, 2).startswith("file:")


def _outputs(graph: memoryview) -> Iterator[str]:
    """Names of the nodes that the signatures' outputs come from."""
    for entry in submessages(graph, 5):
        if text(entry, 1).startswith("__"):
            continue  # what TensorFlow runs once, when it loads
        for body in submessages(entry, 2):
            for output in submessages(body, 2):
                for info in submessages(output, 2):
                    yield text(info, 1).partition(":")[0]
                    for parts in submessages(info, 4):
                        yield from (text(parts, at).partition(":")[0] for at in (1, 2, 3))
                    for composite in submessages(info, 5):
                        yield from (
                            text(part, 1).partition(":")[0] for part in submessages(composite, 2)
                        )


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
