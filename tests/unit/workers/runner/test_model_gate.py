"""Which operations of a SavedModel may serve, on graphs written here byte by byte."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from signalbox.program.errors import InvalidRequest
from workers.runner import savedmodel
from workers.runner.operations import _HARMLESS, judge, known
from workers.runner.operations import FILE as OPERATIONS
from workers.runner.savedmodel import FILE


def field(number: int, value: bytes | str) -> bytes:
    """A length-delimited field."""
    data = value.encode() if isinstance(value, str) else value
    size, out = len(data), bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *out, size]) + data


def attribute(name: str, value: bytes) -> bytes:
    return field(5, field(1, name) + field(2, value))


def calls(function: str) -> bytes:
    return attribute("f", field(10, field(1, function)))


def node(name: str, op: str, *inputs: str, attributes: bytes = b"") -> bytes:
    given = b"".join(field(3, each) for each in inputs)
    return field(1, name) + field(2, op) + given + attributes


def model(nodes: Sequence[bytes], functions: Mapping[str, Sequence[bytes]] | None = None, output: str = "y:0") -> bytes:
    """A saved_model.pb with one signature whose output is ``output``."""
    library = b"".join(
        field(1, field(1, field(1, name)) + b"".join(field(3, body) for body in bodies))
        for name, bodies in (functions or {}).items()
    )
    graph = b"".join(field(1, each) for each in nodes) + field(2, library)
    signature = field(2, field(1, "y") + field(2, field(1, output)))
    meta = field(1, field(4, "serve")) + field(2, graph)
    meta += field(5, field(1, "serving_default") + field(2, signature))
    return field(2, meta)


def verdict(tmp_path: Path, data: bytes) -> tuple[set[str], tuple[str, ...]]:
    (tmp_path / FILE).write_bytes(data)
    found = judge(savedmodel.read(tmp_path)[1])
    return set(found.forbidden), found.unknown


def varint(number: int, value: int) -> bytes:
    """A field whose value is small."""
    return bytes([number << 3, value])


def test_a_plain_model_passes(tmp_path: Path) -> None:
    data = model([node("x", "Placeholder"), node("y", "Mul", "x", "x")])
    assert verdict(tmp_path, data) == (set(), ())


@pytest.mark.parametrize(
    "op",
    [
        "ReadFile",
        "WriteFile",
        "MatchingFiles",
        "PyFunc",
        "PyFuncStateless",
        "EagerPyFunc",
        "Abort",
        "ImmutableConst",
        "GenerateVocabRemapping",
        "GetSessionTensor",
        "ImportEvent",
        "TFRecordDatasetV2",
        "TextLineReaderV2",
        "FixedLengthRecordDataset",
        "CSVDatasetV2",
        "SqlDataset",
        "ExperimentalSqlDataset",
        "SnapshotDatasetV2",
        "SaveDatasetV2",
        "WholeFileReaderV2",
        "RpcCall",
        "RemoteCall",
        "CollectiveReduceV2",
        "DataServiceDatasetV4",
        "RegisterDatasetV2",
        "_Send",
        "_HostRecv",
        "DebugIdentityV2",
        "CreateSummaryFileWriter",
        "WriteSummary",
        "DatasetFromGraph",
        "FileSystemSetConfiguration",
        "ExperimentalLMDBDataset",
    ],
)
@pytest.mark.parametrize("is_hidden", [False, True])
def test_files_networks_and_foreign_code_are_forbidden_also_where_no_signature_leads(
    tmp_path: Path, op: str, is_hidden: bool
) -> None:
    inside = {"f": [node("evil", op)]}
    data = (
        model([node("y", "Const")], inside) if is_hidden else model([node("y", "Identity", "evil"), node("evil", op)])
    )
    forbidden, unknown = verdict(tmp_path, data)
    assert (forbidden, unknown) == ({op}, ())


@pytest.mark.parametrize("op", ["SaveV2", "RestoreV2", "MergeV2Checkpoints", "ShardedFilename"])
@pytest.mark.parametrize("path", ["aside", "direct", "control", "function", "nested", "branch"])
def test_storing_is_forbidden_only_where_a_signature_leads(tmp_path: Path, op: str, path: str) -> None:
    evil = node("evil", op)
    several = attribute("branches", field(1, field(9, field(1, "f"))))
    graphs: dict[str, tuple[list[bytes], dict[str, list[bytes]]]] = {
        "aside": ([node("y", "Const"), evil], {"saver": [evil]}),
        "direct": ([node("y", "Identity", "evil:0"), evil], {}),
        "control": ([node("y", "Identity", "^evil"), evil], {}),
        "function": ([node("y", "PartitionedCall", attributes=calls("f"))], {"f": [evil]}),
        "nested": ([node("y", "PartitionedCall", attributes=calls("g"))], {"g": [node("a", "f")], "f": [evil]}),
        "branch": ([node("y", "Case", attributes=several)], {"f": [evil]}),
    }
    nodes, functions = graphs[path]
    assert verdict(tmp_path, model(nodes, functions)) == (set() if path == "aside" else {op}, ())


PLAIN = node("y", "Identity", "x") + field(9, "no field we know, skipped by everybody")
BODY = field(2, field(1, "y") + field(2, field(1, "y:0")))
SERVE = field(1, field(4, "serve"))
BEYOND = b"\x92\x80\x80\x80\x10" + field(2, "ReadFile")[1:]
"""Field 2, with bits in the number that some readers cut off."""


def graph(*nodes: bytes) -> bytes:
    return field(2, b"".join(field(1, each) for each in nodes))


def meta(*fields: bytes) -> bytes:
    return field(2, b"".join(fields))


ENTRY = field(5, field(1, "serving_default") + field(2, BODY))
TWO_READINGS = {
    "the kind of a node": meta(SERVE, graph(PLAIN + field(2, "ReadFile")), ENTRY),
    "the name of a node": meta(SERVE, graph(PLAIN, node("a", "SaveV2") + field(1, "y")), ENTRY),
    "a node": meta(SERVE, graph(PLAIN, node("y", "SaveV2")), ENTRY),
    "a graph": meta(SERVE, graph(PLAIN), graph(node("evil", "ReadFile")), ENTRY),
    "a body": meta(SERVE, graph(PLAIN), field(5, field(1, "s") + field(2, BODY) + field(2, BODY))),
    "an attribute": meta(
        SERVE,
        graph(
            node(
                "y",
                "PrintV2",
                attributes=field(5, field(1, "a") + field(1, "output_stream") + field(2, field(2, "file:///x"))),
            )
        ),
        ENTRY,
    ),
    "a function's name": meta(
        SERVE, field(2, field(1, PLAIN) + field(2, field(1, field(1, field(1, "f") + field(1, "g"))))), ENTRY
    ),
    "a string that is none": meta(SERVE, graph(field(1, "y") + b"\x11Identity"), ENTRY),
    "a number of 33 bits": meta(SERVE, graph(field(1, "y") + field(2, "Identity") + BEYOND), ENTRY),
    "field 0": meta(SERVE, graph(PLAIN + b"\x02\x01x"), ENTRY),
    "a group": meta(SERVE, graph(PLAIN + b"\x13" + field(2, "ReadFile") + b"\x14"), ENTRY),
    "a type": meta(
        SERVE,
        graph(PLAIN),
        field(5, field(1, "s") + field(2, field(1, (field(1, "x") + field(2, varint(2, 1) + varint(2, 3)))))),
    ),
}


@pytest.mark.parametrize("what", TWO_READINGS)
def test_what_protobuf_reads_otherwise_than_we_would_is_refused(tmp_path: Path, what: str) -> None:
    """Given twice, protobuf takes the last or merges; of another wire type, it skips."""
    assert verdict(tmp_path, meta(SERVE, graph(PLAIN), ENTRY)) == (set(), ())
    with pytest.raises(InvalidRequest, match="damaged"):
        verdict(tmp_path, TWO_READINGS[what])


def test_of_a_function_that_is_there_twice_every_node_counts(tmp_path: Path) -> None:
    twice = [field(1, field(1, field(1, "f")) + field(3, each)) for each in (node("a", "Const"), node("b", "SaveV2"))]
    plain = node("y", "PartitionedCall", attributes=calls("f"))
    for order in (twice, twice[::-1]):
        library = field(2, field(1, plain) + field(2, b"".join(order)))
        assert verdict(tmp_path, meta(SERVE, library, ENTRY)) == ({"SaveV2"}, ())


def test_a_function_handed_to_another_as_an_attribute_counts_as_called(tmp_path: Path) -> None:
    handed = field(2, field(1, "body") + field(2, field(10, field(1, "f"))))
    outer = attribute("f", field(10, field(1, "g") + handed))
    data = model([node("y", "PartitionedCall", attributes=outer)], {"g": [], "f": [node("a", "SaveV2")]})
    assert verdict(tmp_path, data) == ({"SaveV2"}, ())


def test_attributes_within_attributes_are_walked_however_deep(tmp_path: Path) -> None:
    inner = field(10, field(1, "f"))
    for _ in range(2_000):
        inner = field(10, field(1, "g") + field(2, field(1, "body") + field(2, inner)))
    data = model([node("y", "PartitionedCall", attributes=attribute("f", inner))], {"f": [node("a", "SaveV2")]})
    assert verdict(tmp_path, data) == ({"SaveV2"}, ())


def test_a_gradient_is_called_where_its_function_is(tmp_path: Path) -> None:
    functions = field(1, field(1, field(1, "f"))) + field(1, field(1, field(1, "g")) + field(3, node("a", "SaveV2")))
    library = functions + field(2, field(1, "f") + field(2, "g"))
    plain = node("y", "SymbolicGradient", attributes=calls("f"))
    data = meta(SERVE, field(2, field(1, plain) + field(2, library)), ENTRY)
    assert verdict(tmp_path, data) == ({"SaveV2"}, ())


@pytest.mark.parametrize("name", ["serving_default", "__mine"])
def test_whatever_a_signature_is_called_it_counts_unless_tensorflow_runs_it(tmp_path: Path, name: str) -> None:
    def data(name: str) -> bytes:
        entry = field(5, field(1, name) + field(2, BODY))
        return meta(SERVE, graph(node("y", "SaveV2")), entry)

    assert verdict(tmp_path, data(name)) == ({"SaveV2"}, ())
    assert verdict(tmp_path, data("__saved_model_init_op")) == (set(), ())


def test_the_graph_that_is_judged_is_the_one_tagged_serve_and_nothing_else(tmp_path: Path) -> None:
    others = [field(1, field(4, "serve") + field(4, "gpu")), field(1, field(4, "train")), b""]
    evil, plain = graph(node("y", "ReadFile")), graph(PLAIN)
    aside = b"".join(meta(tags, evil, ENTRY) for tags in others)
    assert verdict(tmp_path, aside + meta(SERVE, plain, ENTRY) + meta(SERVE, evil, ENTRY)) == (set(), ())
    with pytest.raises(InvalidRequest, match="Its graphs are tagged: gpu, serve; train; nothing"):
        verdict(tmp_path, aside)


def test_defaults_of_inputs_are_read_and_bounded(tmp_path: Path) -> None:
    def defaults(size: int, name: str = "x") -> dict[str, bytes]:
        body = field(1, field(1, "x") + field(2, field(1, "x:0"))) + field(4, field(1, name) + field(2, b"." * size))
        entries = [field(5, field(1, each) + field(2, body)) for each in ("serving_default", "other")]
        (tmp_path / FILE).write_bytes(meta(SERVE, graph(PLAIN), *entries))
        found = savedmodel.read(tmp_path)[0]
        return {each: b"".join(found[each].defaults.values()) for each in found}

    assert defaults(100) == {"serving_default": b"." * 100, "other": b"." * 100}
    most = savedmodel.MOST_DEFAULTS_BYTES
    assert defaults(most) == {"serving_default": b"." * most, "other": b""}
    assert defaults(100, "no input") == {"serving_default": b"", "other": b""}


def test_an_operation_that_tensorflow_does_not_have_needs_a_persons_word(tmp_path: Path) -> None:
    data = model([node("y", "MyFastOp", "x"), node("x", "Placeholder")], {"mine": [node("a", "mine2")], "mine2": []})
    assert verdict(tmp_path, data) == (set(), ("MyFastOp",))


@pytest.mark.parametrize(
    ("op", "library"),
    [
        ("WordpieceTokenizeWithOffsets", "tensorflow_text"),
        ("TFText>FastSentencepieceTokenize", "tensorflow_text"),
        ("SimpleMLInferenceOpWithHandle", "tensorflow_decision_forests"),
    ],
)
def test_an_operation_of_a_library_that_only_tensorflow_serving_has_names_the_library(
    tmp_path: Path, op: str, library: str
) -> None:
    (tmp_path / FILE).write_bytes(model([node("y", "Const")], {"f": [node("a", op)]}))
    found = judge(savedmodel.read(tmp_path)[1])
    assert found.forbidden == {op: f"belongs to {library}, which workers do not have"}


@pytest.mark.parametrize(
    ("op", "name", "value", "is_bad"),
    [
        ("PrintV2", "output_stream", field(2, "stderr"), False),
        ("PrintV2", "output_stream", field(2, "file:///tmp/x"), True),
        ("PrintV2", "output_stream", field(9, "filled in by the caller"), True),
        ("PrintV2", "end", field(2, "file:///tmp/x"), False),
        ("DecodeProtoV2", "descriptor_source", field(2, "local://"), False),
        ("DecodeProtoV2", "descriptor_source", field(2, b"bytes://\xff\n\xfe"), False),
        ("DecodeProtoV2", "descriptor_source", field(2, "/models/other/saved_model.pb"), True),
        ("DecodeProtoV2", "descriptor_source", field(9, "filled in by the caller"), True),
        ("EncodeProto", "descriptor_source", field(2, ""), False),
        ("EncodeProto", "descriptor_source", field(2, "/models/other/saved_model.pb"), True),
        ("FixedUnigramCandidateSampler", "vocab_file", field(2, ""), False),
        ("FixedUnigramCandidateSampler", "vocab_file", field(2, "vocabulary.txt"), True),
    ],
)
@pytest.mark.parametrize("is_hidden", [False, True])
def test_an_attribute_decides_where_it_can_name_a_file(
    tmp_path: Path, op: str, name: str, value: bytes, is_bad: bool, is_hidden: bool
) -> None:
    asked = node("p", op, attributes=attribute(name, value))
    plain = [node("y", "Const")]
    data = model(plain, {"f": [asked]}) if is_hidden else model([*plain, asked])
    assert verdict(tmp_path, data) == ({f"{op} with its {name}"} if is_bad else set(), ())


def test_what_every_operation_does_is_said_once_and_in_known_words() -> None:
    lines = [line for line in OPERATIONS.read_text().splitlines() if not line.startswith("#")]
    assert lines == sorted(set(lines))
    assert len(known()) == len(lines)
    assert all(each.does for each in known().values())
    assert {each.attribute for each in known().values()} == {"", *_HARMLESS}


def test_a_ring_of_functions_is_walked_once(tmp_path: Path) -> None:
    ring = {f"f{n}": [node("a", f"f{(n + 1) % 50}"), node("b", "Const")] for n in range(50)}
    data = model([node("y", "f0", "y")], ring)
    assert verdict(tmp_path, data) == (set(), ())


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_damaged_graph_is_refused_in_our_words(tmp_path: Path, cut: int) -> None:
    data = model([node("x", "Placeholder"), node("y", "Mul", "x", "x")])
    with pytest.raises(InvalidRequest):
        verdict(tmp_path, data[:-cut])
