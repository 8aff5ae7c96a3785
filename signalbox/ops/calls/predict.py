"""``signalbox predict``: run a model and print its answer."""

import argparse
import json
from typing import Any

from signalbox.client import Client
from signalbox.ops import output
from signalbox.ops.calls import arrays, inputs, place
from signalbox.program.errors import InvalidInput, InvalidRequest, SignalboxError

_EPILOG = f"""{inputs.HELP}

Examples:

  signalbox predict --list
  signalbox predict half_plus_two --describe
  signalbox predict half_plus_two -i '[1.0, 2.0, 5.0]'
  signalbox predict digits -i images.npz -o answers.npz
  curl -s https://example.org/rows.json | signalbox predict digits -i - --label canary --json

Exit status: 0 answered, 1 the model failed or took too long, 2 refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, its inputs, and where the answer goes."""
    parser.description = "Run a model and wait for its answer. JSON in gives JSON out; arrays give arrays."
    parser.epilog = _EPILOG
    place.add_model(parser, nargs="?")
    inputs.add_option(parser)
    add_version_options(parser)
    parser.add_argument("--save", "-o", default="", metavar="FILE", help="Save the answer: .npz, .npy or .json.")
    parser.add_argument("--list", action="store_true", help="The models that the key may call.")
    parser.add_argument("--describe", action="store_true", help="What the model takes and gives.")
    place.add_options(parser, timeout_s=60.0, waits_for="the answer")


def add_version_options(parser: argparse.ArgumentParser) -> None:
    """Which version of the model, and which of its signatures."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, metavar="N", help="This version (default: the one that is served).")
    which.add_argument("--label", metavar="LABEL", help="The version that has this label.")
    parser.add_argument("--signature", metavar="NAME", help="Another signature than serving_default.")


def run(arguments: argparse.Namespace) -> int:
    """Predict, list or describe; the exit status."""
    arrays.check(arguments.save)
    with place.client_of(arguments) as client:
        if arguments.list:
            return _list(client, arguments)
        if not arguments.model:
            raise InvalidRequest("Name a model; `signalbox predict --list` has those that the key may call.")
        if arguments.describe:
            return _describe(client, arguments)
        given = inputs.read(arguments.input, lambda: only_input(client, arguments.model))
        try:
            with output.Progress(f"waiting for {arguments.model}"):
                answer = client.predict(
                    arguments.model,
                    given.inputs,
                    instances=given.instances,
                    version=arguments.version,
                    label=arguments.label,
                    signature=arguments.signature or given.signature or None,
                    timeout_s=arguments.timeout,
                )
        except SignalboxError as error:
            return place.told(error)
    _put(answer, arguments)
    return 0


def only_input(client: Client, model: str) -> str:
    """Name of the one input of a model. Raises :class:`InvalidInput` where it has several."""
    names = [one["name"] for one in client.metadata(model)["inputs"]]
    if len(names) != 1:
        raise InvalidInput(f"{model} has the inputs {', '.join(names)}: name the array, --input {names[0]}=FILE.")
    return str(names[0])


def _put(answer: dict[str, Any], arguments: argparse.Namespace) -> None:
    if all(hasattr(one, "dtype") for one in answer.values()):
        arrays.put(answer, arguments.save, is_json=arguments.json)
    elif arguments.save:
        arrays.put_json(answer, arguments.save)
    else:
        print(json.dumps(answer))


def _list(client: Client, arguments: argparse.Namespace) -> int:
    found = client.models()
    if arguments.json:
        output.emit_json(found)
    else:
        rows = [
            (one["name"], one["default_version"], one["versions"], [f"{name}={n}" for name, n in one["labels"].items()])
            for one in found["details"]
        ]
        output.emit_table(("MODEL", "SERVES", "VERSIONS", "LABELS"), rows, "no model")
    return 0


def _describe(client: Client, arguments: argparse.Namespace) -> int:
    found = client.metadata(arguments.model)
    if arguments.json:
        output.emit_json(found)
        return 0
    rows = [
        (kind, one["name"], one["datatype"], " x ".join("any" if size < 0 else str(size) for size in one["shape"]))
        for kind in ("inputs", "outputs")
        for one in found.get(kind, ())
    ]
    output.emit_table(("", "NAME", "TYPE", "SHAPE"), [(kind[:-1], *rest) for kind, *rest in rows])
    return 0
