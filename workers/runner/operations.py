"""The gate for a SavedModel's operations: what reads files, takes addresses, ends or leaves the process needs a person.

A second line and no proof: the runner's sandbox is what holds. ``tensorflow_ops.txt`` says of every operation of the
TensorFlow that we install what it does. One that is not there was never reviewed, and needs a person too.
"""

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from workers.runner.protowire import single, submessages, text

FILE: Final = Path(__file__).with_name("tensorflow_ops.txt")
OWN: Final = frozenset({"__saved_model_init_op", "__saved_model_train_op"})
"""Signatures that are TensorFlow's: what it runs when it loads or trains, and nobody calls."""
_COMPUTES: Final = "computes"
_STORES: Final = "stores"
_HARMLESS: Final = {
    "descriptor_source": re.compile(rb"(local://)?|bytes://.*", re.DOTALL),
    "vocab_file": re.compile(rb""),
    "output_stream": re.compile(rb"(stdout|stderr|log\((info|warning|error)\))?"),
}
"""Values of attributes that name neither a file nor an address."""
_WITH: Final = " with its "
"""Between an operation and the attribute that makes it do what it may not."""


@functools.cache
def rules() -> str:
    """Digest of the list and of what applies it: another one may judge otherwise."""
    return hashlib.sha256(FILE.read_bytes() + Path(__file__).read_bytes()).hexdigest()


class Known(NamedTuple):
    """What an operation does, as a person has reviewed it. attribute: the one that decides whether it does, if any."""

    does: str
    attribute: str = ""


@functools.cache
def known() -> Mapping[str, Known]:
    """Read the reviewed operations, by name."""
    lines = (line for line in FILE.read_text().splitlines() if not line.startswith("#"))
    parted = (line.partition(" ") for line in lines)
    return {name: Known(*what.split(": ")) for name, _, what in parted}


class OperationFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of a model that need approval.

    forbidden: kind of operation to what it does. unknown: kinds that were never reviewed.
    """

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
        reached = list(_reached(_by_name(main), _outputs(graph)))
        called = _called(functions, reached)
        return Operations(
            frozenset(node.kind for node in every if node.kind),
            frozenset(node.kind for node in [*reached, *called] if node.kind),
            frozenset(functions),
        )


def judge(operations: Operations) -> OperationFindings:
    """Find the operations that may not serve before a person has approved them."""
    forbidden: dict[str, str] = {}
    unknown = []
    for kind in sorted(operations.kinds):
        name, _, attribute = kind.partition(_WITH)
        found = known().get(name)
        if found is None:
            if kind not in operations.functions:
                unknown.append(kind)
        elif found.does == _STORES:
            if kind in operations.serving:
                forbidden[kind] = "reads or writes files when a request is answered"
        elif found.does != _COMPUTES and found.attribute == attribute:
            forbidden[kind] = found.does
    return OperationFindings(forbidden=forbidden, unknown=tuple(unknown))


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
        decisive = known()[kind].attribute if kind in known() else ""
        calls = [kind]
        for entry in submessages(node, 5):
            value = single(entry, 2)
            calls += _function_names(value)
            if text(entry, 1) == decisive and not _is_harmless(decisive, value):
                yield _Node("", f"{kind}{_WITH}{decisive}", (), ())
        inputs = tuple(bytes(name).decode().lstrip("^").partition(":")[0] for name in submessages(node, 3))
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


def _is_harmless(attribute: str, value: memoryview) -> bool:
    """Whether a value is harmless; a placeholder, which the function's caller fills in, is not."""
    is_given_by_the_caller = bool(text(value, 9))
    return not is_given_by_the_caller and bool(_HARMLESS[attribute].fullmatch(single(value, 2)))


def _outputs(graph: memoryview) -> Iterator[str]:
    """Names of the nodes that the signatures' outputs come from."""
    for entry in submessages(graph, 5):
        if text(entry, 1) in OWN:
            continue
        for output in submessages(single(entry, 2), 2):
            info = single(output, 2)
            sparse, composite = single(info, 4), single(info, 5)
            names = [text(info, 1), *(text(sparse, at) for at in (1, 2, 3))]
            names += (text(part, 1) for part in submessages(composite, 2))
            yield from (name.partition(":")[0] for name in names if name)


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
