"""Requests to TensorFlow Serving's REST API and what it answers, from its documents, sources and tests.

The models are those of :mod:`tests.rigs.servingmodels` and :mod:`tests.rigs.models`: ``half`` (versions 1 and 2, the
label ``stable`` on 1), ``pair``, ``shout``, ``mirror``, ``total``, ``weigh`` and ``scorer``. Sources:
``json_tensor_test.cc``, ``http_rest_api_handler_test.cc``, ``http_rest_api_util.cc``, ``classifier.cc``,
``regressor.cc``, ``get_model_status_impl.cc`` and ``api_rest.md`` of TensorFlow Serving 2.20.
"""

import json
from typing import Final, NamedTuple

Body = str | bytes


class Golden(NamedTuple):
    """One request and its answer: JSON text, or for a status of 400 and above what the error begins with."""

    path: str
    body: Body
    answer: str
    status: int = 200
    method: str = "POST"

    @property
    def name(self) -> str:
        """For pytest."""
        return f"{self.method} {self.path} {self.body[:60]!r}"


def _good(call: str, *pairs: tuple[Body, str]) -> list[Golden]:
    """call: ``model:verb``."""
    return [Golden(f"/v1/models/{call}", body, answer) for body, answer in pairs]


def _bad(call: str, *pairs: tuple[Body, str], status: int = 400) -> list[Golden]:
    return [Golden(f"/v1/models/{call}", body, words, status) for body, words in pairs]


def _row(index: int, words: str, name: str = "") -> str:
    key = f" key: {name}" if name else ""
    return f"Failed to process element: {index}{key} of 'instances' list. Error: INVALID_ARGUMENT: {words}"


ONE: Final = [
    *_good(
        "half:predict",
        ('{"instances": [1.0, 2.0, 5.0]}', '{"predictions": [2.5, 3.0, 4.5]}'),
        ('{"instances": [1, 2, 5]}', '{"predictions": [2.5, 3.0, 4.5]}'),
        ('{"instances": [{"x": 1.0}, {"x": 2}]}', '{"predictions": [2.5, 3.0]}'),
        ('{"signature_name": "serving_default", "instances": [3.0, 4.0]}', '{"predictions": [3.5, 4.0]}'),
        ('{"signature_name": "", "instances": [3.0]}', '{"predictions": [3.5]}'),
        ('{"inputs": [3.0, 4.0]}', '{"outputs": [3.5, 4.0]}'),
        ('{"inputs": {"x": [3.0, 4.0]}}', '{"outputs": [3.5, 4.0]}'),
        ('{"inputs": {"x": [1.0], "unknown": "a"}}', '{"outputs": [2.5]}'),
        ('{"inputs": 5.0}', '{"outputs": 4.5}'),
        ('{"inputs": []}', '{"outputs": []}'),
        ('{"instances": [[1.0, 2.0], [3.0, 4.0]]}', '{"predictions": [[2.5, 3.0], [3.5, 4.0]]}'),
        ('{"instances": [1.0], "unknown": {"a": [1]}}', '{"predictions": [2.5]}'),
        ('{"instances": [NaN, Infinity, -Infinity]}', '{"predictions": [NaN, Infinity, -Infinity]}'),
        ('{"instances": [Inf, -Inf]}', '{"predictions": [Infinity, -Infinity]}'),
        ('{"instances": [1.7976931348623157e308, -1e39]}', '{"predictions": [Infinity, -Infinity]}'),
        ('{"instances": [2.2250738585072014e-308]}', '{"predictions": [2.0]}'),
        ('{"instances": [0.4, -3.5]}', '{"predictions": [2.2, 0.25]}'),
        ('{"instances": [1.0]}X', '{"predictions": [2.5]}'),
        (b'\xef\xbb\xbf{"instances": [1.0]}', '{"predictions": [2.5]}'),
        (b'{"instances": [1.0]}\n\0', '{"predictions": [2.5]}'),
        ('{"instances": [[]]}', '{"predictions": [[]]}'),
        (
            '{"instances": [4194305, 18446744073709551616]}',
            '{"predictions": [2097154.5, 9.223372e+18]}',
        ),
        ('{"instances": [-0.0, 1e-50]}', '{"predictions": [2.0, 2.0]}'),
        ('{"instances": [[[1.0]], [[2.0]]]}', '{"predictions": [[[2.5]], [[3.0]]]}'),
    ),
    *_good("half/versions/1:predict", ('{"instances": [1.0]}', '{"predictions": [2.5]}')),
    *_good("half/versions/002:predict", ('{"instances": [1.0]}', '{"predictions": [2.5]}')),
    *_good("half/labels/stable:predict", ('{"instances": [1.0]}', '{"predictions": [2.5]}')),
    *_good("half/LABELS/st%61ble:predict", ('{"instances": [1.0]}', '{"predictions": [2.5]}')),
    *_good("h%61lf:predict", ('{"instances": [1.0]}', '{"predictions": [2.5]}')),
    Golden("/V1/MODELS/half/VERSIONS/1:predict", '{"instances": [1.0]}', '{"predictions": [2.5]}'),
    *_good("total:predict", ('{"inputs": [1.0, 2.0]}', '{"outputs": 3.0}')),
    *_good("weigh:predict", ('{"instances": [[1, 1, 1, 1, 1, 1, 1, 1]]}', '{"predictions": [[8.0, 8.0, 8.0]]}')),
]

SEVERAL: Final = [
    *_good(
        "pair:predict",
        (
            '{"instances": [{"a": [1, 2], "s": "foo"}, {"s": {"b64": "YmFy"}, "a": [3, 4]}]}',
            (
                '{"predictions": [{"sum": 3, "s": "FOO", "raw_bytes": {"b64": "Zm9v"}}, '
                '{"sum": 7, "s": "BAR", "raw_bytes": {"b64": "YmFy"}}]}'
            ),
        ),
        (
            '{"inputs": {"a": [[1, 2]], "s": ["foo"], "more": 1}}',
            '{"outputs": {"sum": [3], "s": ["FOO"], "raw_bytes": [{"b64": "Zm9v"}]}}',
        ),
        (
            '{"inputs": {"a": [[1, 2], [3, 4]], "s": "one"}}',
            '{"outputs": {"sum": [3, 7], "s": "ONE", "raw_bytes": {"b64": "b25l"}}}',
        ),
        ('{"inputs": {"a": [[2, 2]], "s": []}}', '{"outputs": {"sum": [4], "s": [], "raw_bytes": []}}'),
    ),
    *_bad(
        "pair:predict",
        ('{"instances": [1]}', "instances is a plain list, but expecting list of objects as multiple input tensors"),
        ('{"inputs": [1]}', "inputs is a plain value/list, but expecting an object as multiple input tensors"),
        (
            '{"instances": [{"a": [1, 2]}]}',
            ("Failed to process element: 0 of 'instances' list. JSON object: {\n    \"a\": [1, 2]\n} keys"),
        ),
        (
            '{"instances": [{"a": [1, 2], "s": "x", "z": 1}]}',
            (_row(0, "JSON object: does not have named input: z", "z")),
        ),
        (
            '{"instances": [{"a": [1, 2], "s": "x"}, {"a": [1], "s": "x"}]}',
            (_row(1, "Expecting tensor size: 2 but got: 1", "a")),
        ),
        (
            '{"instances": [{"a": [1, 2], "s": "x"}, [1, 2]]}',
            "Expecting object but got list at item 1 of input list",
        ),
        ('{"inputs": {"s": ["x"]}}', "Missing named input: a in 'inputs' object."),
        ('{"instances": [{"a": [1.0, 2], "s": "x"}]}', "Failed to process element: 0 key: a of 'instances' list."),
        (
            '{"inputs": {"a": [[1, 2], [3, 4]], "s": ["one"]}, "instances": []}',
            'JSON Value: {\n    "inputs": {',
        ),
    ),
    *_bad("total:predict", ('{"instances": [1.0]}', "Tensor name: y has no shape information")),
    *_bad(
        "pair:predict",
        (
            '{"instances": [{"a": [1, 2], "s": ["x", "y"]}, {"a": [1, 2], "s": ["z"]}]}',
            (_row(1, "Expecting tensor size: 2 but got: 1", "s")),
        ),
    ),
]

STRINGS: Final = [
    *_good(
        "shout:predict",
        (
            '{"instances": ["foo", "b\\u00e9"]}',
            '{"predictions": [{"loud": "FOO", "size": 3}, {"loud": "B\u00e9", "size": 3}]}',
        ),
        ('{"instances": [{"b64": "Zm9v"}]}', '{"predictions": [{"loud": "FOO", "size": 3}]}'),
        ('{"instances": [{"text": {"b64": "Zm9v"}}]}', '{"predictions": [{"loud": "FOO", "size": 3}]}'),
        ('{"inputs": {"b64": "Zm8"}}', '{"outputs": {"loud": "FO", "size": 2}}'),
        (
            '{"inputs": [["a", "b"], ["", "c"]]}',
            '{"outputs": {"loud": [["A", "B"], ["", "C"]], "size": [[1, 1], [0, 1]]}}',
        ),
        ('{"inputs": "null"}', '{"outputs": {"loud": "NULL", "size": 4}}'),
    ),
    *_bad(
        "shout:predict",
        (
            '{"instances": ["a", 1]}',
            (_row(1, "JSON Value: 1 Type: Number is not of expected type: string")),
        ),
        ('{"inputs": [null]}', "JSON Value: null Type: Null is not of expected type: string"),
        ('{"inputs": [{"a": "b"}]}', 'JSON Value: {\n    "a": "b"\n} not formatted correctly for base64 data'),
        ('{"inputs": [["a"], ["b", "c"]]}', "Encountered list at unexpected size: 2 at level: 1 expected size: 1"),
        ('{"inputs": ["a", ["b"]]}', "Encountered list at unexpected level: 1 expected < 1"),
        (
            '{"inputs": [["a"], "b"]}',
            'JSON Value: "b" found at incorrect level: 2 in the JSON DOM. Expected at level: 2',
        ),
    ),
]

_ZEROS: Final = {
    "x_bool": "[false, true]",
    "x_int8": "[0, -128]",
    "x_uint8": "[0, 255]",
    "x_int16": "[0, -32768]",
    "x_uint16": "[0, 65535]",
    "x_float16": "[0.0, 0.5]",
    "x_bfloat16": "[0.0, -2.0]",
    "x_int32": "[0, -2147483648]",
    "x_uint32": "[0, 4294967295]",
    "x_float32": "[0.2, 123456.0]",
    "x_int64": "[9223372036854775807, -9223372036854775808]",
    "x_uint64": "[0, 18446744073709551615]",
    "x_float64": "[0.30000000000000004, 2.0]",
    "x_complex64": "[[0.0, 1.0], [2.0, -0.5]]",
    "x_complex128": "[[0.0, 1.0], [2.0, -0.5]]",
    "x_string": '["", "a"]',
}


def _mirrored(**changed: str) -> str:
    """A columnar request for every dtype, with some tensors' rows changed."""
    rows = {**_ZEROS, **{f"x_{dtype}": row for dtype, row in changed.items()}}
    return '{"inputs": {' + ", ".join(f'"{name}": [{row}]' for name, row in rows.items()) + "}}"


_WRONG_TYPES: Final = (
    ("bool", "[1, 0]", "JSON Value: 1 Type: Number is not of expected type: bool"),
    ("bool", '["true", true]', 'JSON Value: "true" Type: String is not of expected type: bool'),
    ("int8", "[0.5, 0]", "JSON Value: 0.5 Type: Number is not of expected type: int8"),
    ("uint8", "[0, true]", "JSON Value: true Type: True is not of expected type: uint8"),
    ("int16", "[null, 0]", "JSON Value: null Type: Null is not of expected type: int16"),
    ("int32", "[2.0, 0]", "JSON Value: 2.0 Type: Number is not of expected type: int32"),
    ("int32", "[2147483648, 0]", "JSON Value: 2147483648 Type: Number is not of expected type: int32"),
    ("uint32", "[-1, 0]", "JSON Value: -1 Type: Number is not of expected type: uint32"),
    ("uint32", "[4294967296, 0]", "JSON Value: 4294967296 Type: Number is not of expected type: uint32"),
    (
        "int64",
        "[9223372036854775808, 0]",
        "JSON Value: 9223372036854775808 Type: Number is not of expected type: int64",
    ),
    ("uint64", "[-1, 0]", "JSON Value: -1 Type: Number is not of expected type: uint64"),
    ("float32", '["1.0", 1.0]', 'JSON Value: "1.0" Type: String is not of expected type: float'),
    ("float32", "[false, 1.0]", "JSON Value: false Type: False is not of expected type: float"),
    (
        "float64",
        '[{"b64": "AA=="}, 1.0]',
        'JSON Value: {\n    "b64": "AA=="\n} Type: Object is not of expected type: double',
    ),
    ("int64", "[1e2, 0]", "JSON Value: 100.0 Type: Number is not of expected type: int64"),
    (
        "uint64",
        "[18446744073709551616, 0]",
        "JSON Value: 18446744073709552000.0 Type: Number is not of expected type: ui",
    ),
    ("bool", "[null, true]", "JSON Value: null Type: Null is not of expected type: bool"),
    ("string", "[1.5, 0]", "JSON Value: 1.5 Type: Number is not of expected type: string"),
)

DTYPES: Final = [
    *_good("mirror:predict", (_mirrored(), _mirrored().replace("inputs", "outputs").replace('"x_', '"y_'))),
    *_bad("mirror:predict", *((_mirrored(**{dtype: row}), words) for dtype, row, words in _WRONG_TYPES)),
]

SHAPES: Final = _bad(
    "half:predict",
    ('{"instances": [[1, 2], [3, 4], [5, 6, 7]]}', "Failed to process element: 2 of 'instances' list. Error: "),
    (
        '{"instances": [[1, 2], [[3, 4]]]}',
        _row(1, "E"),
    ),
    (
        '{"instances": [1, [1]]}',
        _row(1, "Expecting s"),
    ),
    (
        '{"instances": [[1, 2], ["a", "b"]]}',
        "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT",
    ),
    ('{"instances": [[1], {"x": [1]}]}', "Expecting value/list but got object at item 1 of input list"),
    ('{"instances": [{"x": 1}, 1]}', "Expecting object but got list at item 1 of input list"),
    ('{"inputs": [[1, 2], [3]]}', "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
    ('{"inputs": [1, [2]]}', "Encountered list at unexpected level: 1 expected < 1"),
    ('{"inputs": [[1], 2]}', "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2"),
    ('{"inputs": {"z": [1]}}', "Missing named input: x in 'inputs' object."),
)

BODIES: Final = [
    *_bad(
        "half:predict",
        ("", "JSON Parse error: The document is empty"),
        ("  ", "JSON Parse error: The document is empty. at offset: 2"),
        ("instances = [1, 2]", "JSON Parse error: Invalid value. at offset: 0"),
        ('{"instances": [1.0,]}', "JSON Parse error: Invalid value. at offset: 19"),
        ('{"instances": [1.0', "JSON Parse error: Missing a comma or ] after an array element. at offset: 18"),
        ('{"instances": [1.0]', "JSON Parse error: Missing a comma or } after an object member. at offset: 19"),
        ("{'instances': [1.0]}", "JSON Parse error: Missing a name for object member. at offset: 1"),
        ('{"instances" [1.0]}', "JSON Parse error: Missing a colon after a name of object member. at offset: 13"),
        ('{"instances": "abc', "JSON Parse error: Missing a closing quotation mark in string. at offset: 18"),
        ('{"instances": [1e400]}', "JSON Parse error: Number too big to be stored in double. at offset: 15"),
        ("[1.0, 2.0]", "JSON Value: [1.0, 2.0] Is not object"),
        ('"a"', 'JSON Value: "a" Is not object'),
        ("{}", "Missing 'inputs' or 'instances' key"),
        ('{"instances": []}', "JSON Value: {\n    \"instances\": []\n} No values in 'instances' array"),
        ('{"instances": 1}', "JSON Value: {\n    \"instances\": 1\n} Expecting 'instances' to be an list/array"),
        ('{"instances": {"x": 1}}', 'JSON Value: {\n    "instances": {\n        "x": 1\n    }\n} Expecting'),
    ),
    *_bad("nobody:predict", ("{", "JSON Parse error: Missing a name for object member. at offset: 1")),
    *_bad("nobody:classify", ('{"examples": {}}', 'JSON Value: {\n    "examples": {}\n} Expecting')),
]

SIGNATURES: Final = [
    *_bad(
        "half:predict",
        (
            '{"signature_name": "nope", "instances": [1.0]}',
            'Serving signature name: "nope" not found in signature def',
        ),
        (
            '{"signature_name": 100}',
            "JSON Value: {\n    \"signature_name\": 100\n} not formatted correctly. 'signature_name' key must be a s",
        ),
    ),
    *_bad(
        "half:classify",
        ('{"examples": [{"x": 1.0}]}', "No classification inputs found in SignatureDef"),
        ('{"examples": [{}], "signature_name": "nope"}', "No signature was found with the name: nope"),
    ),
    *_bad(
        "half:regress",
        ('{"examples": [{"x": 1.0}]}', "No regression inputs found in SignatureDef"),
        ('{"examples": [{}], "signature_name": "nope"}', "No signature was found with the name: nope"),
    ),
    *_good(
        "scorer:predict",
        ('{"signature_name": "predict", "instances": [[2.0]]}', '{"predictions": [[3.0]]}'),
        ('{"signature_name": "predict", "inputs": [[2.0], [4.0]]}', '{"outputs": [[3.0], [4.0]]}'),
        ('{"signature_name": "features", "instances": [{"inputs": [2.0]}]}', '{"predictions": [[3.0]]}'),
    ),
]

CLASSIFY: Final = [
    *_good(
        "scorer:classify",
        ('{"examples": [{"x": 20.0}]}', '{"results": [[["low", 12.0], ["high", 20.0]]]}'),
        (
            '{"examples": [{"x": 20.0}, {"x": [0.4], "k": 1}]}',
            '{"results": [[["low", 12.0], ["high", 20.0]], [["low", 3.2], ["high", 0.4]]]}',
        ),
        (
            '{"context": {"x": 4.0, "k": [true]}, "examples": [{"x": 2.0}, {"k": 0}]}',
            '{"results": [[["low", 4.0], ["high", 2.0]], [["low", 4.0], ["high", 4.0]]]}',
        ),
        ('{"signature_name": "scores", "examples": [{"x": 2.0}]}', '{"results": [[["", 3.0], ["", 2.0]]]}'),
        ('{"signature_name": "labels", "examples": [{"x": 2.0}]}', '{"results": [[["low", 0.0], ["high", 0.0]]]}'),
        (
            '{"signature_name": "names", "examples": [{"x": 2.0, "name": "foo"}, {"x": 2.0, "name": {"b64": "YmFy"}}]}',
            '{"results": [[["foo", 0.0]], [["bar", 0.0]]]}',
        ),
        (
            '{"signature_name": "scores", "examples": [{"x": NaN}, {"x": Infinity}]}',
            '{"results": [[["", NaN], ["", NaN]], [["", Infinity], ["", Infinity]]]}',
        ),
    ),
    *_good(
        "scorer/versions/1:classify", ('{"examples": [{"x": 20.0}]}', '{"results": [[["low", 12.0], ["high", 20.0]]]}')
    ),
    *_bad(
        "scorer:classify",
        (
            '{"signature_name": "regress", "examples": [{"x": 2.0}]}',
            "Expected classification signature outputs to cont",
        ),
        (
            '{"signature_name": "shrunk", "examples": [{"x": 2.0}, {"x": 1.0}]}',
            "Expected scores output batch size of 2. G",
        ),
        ('{"examples": [{"x": 80}]}', ""),
        ('{"examples": [{}]}', ""),
    ),
]

REGRESS: Final = [
    *_good(
        "scorer:regress",
        ('{"signature_name": "regress", "examples": [{"x": 80.0}]}', '{"results": [42.0]}'),
        ('{"signature_name": "flat", "examples": [{"x": 80.0}, {"x": 0.4}]}', '{"results": [42.0, 2.2]}'),
        (
            '{"signature_name": "regress", "context": {"x": 80.0}, "examples": [{}, {"k": 3}]}',
            '{"results": [42.0, 45.0]}',
        ),
        (
            '{"signature_name": "flat", "examples": [{"x": NaN}, {"x": -Infinity}]}',
            '{"results": [NaN, -Infinity]}',
        ),
    ),
    *_bad(
        "scorer:regress",
        ('{"examples": [{"x": 80.0}]}', "Expected one output Tensor."),
        ('{"signature_name": "scores", "examples": [{"x": 80.0}]}', "No regression outputs found in SignatureDef"),
        (
            '{"signature_name": "wide", "examples": [{"x": 80.0}]}',
            "Expected output Tensor shape to be either [batch_size]",
        ),
        (
            '{"signature_name": "double", "examples": [{"x": 80.0}]}',
            "Expected output Tensor of DT_FLOAT.  Got: DT_DOUBLE",
        ),
        (
            '{"signature_name": "first", "examples": [{"x": 80.0}, {"x": 1.0}]}',
            "Input batch size did not match output batch size: 2 vs. 1",
        ),
        (
            '{"signature_name": "features", "examples": [{"x": 80.0}]}',
            "Expects arg[0] to be float but string is provided",
        ),
        ('{"signature_name": "predict", "examples": [{"x": 80.0}]}', "No regression inputs found in SignatureDef"),
        ('{"signature_name": "regress", "examples": [{"x": 80}]}', ""),
        (
            '{"signature_name": ["regress"], "examples": [{"x": 80}]}',
            'JSON Value: {\n    "signature_name": ["regress"],',
        ),
        (
            '{"signature_name": "regress"}',
            'JSON Value: {\n    "signature_name": "regress"\n} When method is classify, ',
        ),
        ('{"context": [], "examples": [{}]}', "Example must be JSON object but got JSON Array"),
        ('{"examples": [[{}]]}', "Example must be JSON object but got JSON Array"),
        ('{"examples": [{"names": [10, null]}]}', "Feature: names has element with unexpected JSON type: Null"),
        ('{"examples": [{"names": [10, 10.0]}]}', "Unexpected element type in feature: names expecting type: int64"),
        (
            '{"examples": [{"names": [10, {"test": 10}]}]}',
            "Feature: names has element with unexpected JSON type: Object",
        ),
        ('{"examples": [{"names": [[10], 20]}]}', "Feature: names has element with unexpected JSON type: Array"),
        (
            '{"examples": [{"n": [20, 18446744073709551603]}]}',
            "Feature: n has uint64_t element. Only int64_t is supported",
        ),
    ),
]


def _malformed(method: str, path: str) -> Golden:
    return Golden(path, "", f"Malformed request: {method} {path}", 400, method)


_STATE: Final = '{{"version": "{}", "state": "AVAILABLE", "status": {{"error_code": "OK", "error_message": ""}}}}'
_BOTH: Final = f'{{"model_version_status": [{_STATE.format(2)}, {_STATE.format(1)}]}}'
_FIRST: Final = f'{{"model_version_status": [{_STATE.format(1)}]}}'

PATHS: Final = [
    Golden("/v1/models/half", "", _BOTH, method="GET"),
    Golden("/v1/models/half/METADATA", "", _BOTH, method="GET"),
    Golden("/V1/Models/half/Versions/1", "", _FIRST, method="GET"),
    Golden("/v1/models/half/labels/stable", "", _FIRST, method="GET"),
    Golden("/v1/models/half/versions/9", "", "Could not find version 9 of model half", 404, "GET"),
    Golden("/v1/models/nobody/versions/3", "", "Could not find version 3 of model nobody", 404, "GET"),
    Golden("/v1/models/nobody", "", "Could not find any versions of model nobody", 404, "GET"),
    Golden("/v1/models/half/labels/no", "", "Unrecognized servable version label: no", 400, "GET"),
    Golden("/v1/models/nobody/labels/no", "", "Unrecognized servable version label: no", 400, "GET"),
    Golden("/v1/models/nobody/metadata", "", "Servable not found for request: Latest(nobody)", 404, "GET"),
    Golden("/v1/models/half/versions/9/metadata", "", "Servable not found for request: Specific(half, 9)", 404, "GET"),
    Golden("/v1/models/versions/3", "", "Missing model name in request.", 400, "GET"),
    Golden("/v1/models/labels/x/metadata", "", "Missing model name in request.", 400, "GET"),
    *_bad("nobody:predict", ('{"instances": [1]}', "Servable not found for request: Latest(nobody)"), status=404),
    *_bad(
        "half/versions/9:predict",
        ('{"instances": [1]}', "Servable not found for request: Specific(half, 9)"),
        status=404,
    ),
    *_bad("nobody:classify", ('{"examples": [{}]}', "Servable not found for request: Latest(nobody)"), status=404),
    *_bad(
        "nobody/versions/3:regress",
        ('{"examples": [{}]}', "Servable not found for request: Specific(nobody, 3)"),
        status=404,
    ),
    *_bad("half/labels/no:predict", ('{"instances": ["x"]}', "Unrecognized servable version label: no")),
    *_bad(
        "half/versions/18446744073709551615:regress",
        ("", "Failed to convert version: 18446744073709551615 to numeric."),
    ),
    *(
        _malformed(method, path)
        for method, path in (
            ("GET", "/v1/foo"),
            ("POST", "/v1/foo"),
            ("GET", "/v1/models/debug/model_name"),
            ("GET", "/v1/models/"),
            ("POST", "/v1/models"),
            ("GET", "/v1/models/foo:predict"),
            ("GET", "/v1/models/foo/version/50:predict"),
            ("POST", "/v1/models/foo/version/50:regress"),
            ("POST", "/v1/models/foo/versions/HELLO:regress"),
            ("POST", "/v1/models/foo/metadata"),
            ("POST", "/v1/models/foo/label/some_label:regress"),
            ("POST", "/v1/models/foo/versions/50/labels/some_label:regress"),
            ("POST", "/v1/models/half:PREDICT"),
            ("POST", "/v1/models/half:train"),
            ("POST", "/v1/models/half"),
            ("PUT", "/v1/models/half:predict"),
            ("DELETE", "/v1/models/half"),
            ("PATCH", "/v1/models/half"),
        )
    ),
]

ALL: Final = [
    *ONE,
    *SEVERAL,
    *STRINGS,
    *DTYPES,
    *SHAPES,
    *BODIES,
    *SIGNATURES,
    *CLASSIFY,
    *REGRESS,
    *PATHS,
]


def tokens(text: str) -> object:
    """A JSON document with its numbers as they are written, so that ``2.0`` is no ``2``."""
    return json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
