"""``signalbox models import``: has the console serve what a configuration of TensorFlow Serving names."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from signalbox.ops import output
from signalbox.ops.http import Rest
from signalbox.program.errors import Misconfigured

MOST_FILE_BYTES: Final = 512 * 1024
"""What the console takes of one file (``signalbox.wire.servingconfig``, which a base install cannot import)."""
_EXIT_LEFT: Final = 1


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parser of the act."""
    one = acts.add_parser(
        "import",
        help="Serve what a models.config of TensorFlow Serving names.",
        description=(
            "Have the console serve the models of a models.config: names, base paths, version policies, labels and "
            "batching. It says what became of each field. Run again, it registers versions that have come and changes "
            "only what differs. The exit status is 1 where a model was refused."
        ),
        epilog="Example:\n\n  signalbox models import models.config --batching batching.config",
    )
    one.add_argument("file", type=Path, help="models.config, as in --model_config_file.")
    one.add_argument("--batching", type=Path, metavar="FILE", help="As in --batching_parameters_file.")
    one.set_defaults(catalog_act=_import)
    yield one


def _import(console: Rest, arguments: argparse.Namespace) -> int:
    body = {"config": _text(arguments.file), "batching": _text(arguments.batching) if arguments.batching else ""}
    with output.Progress("importing"):
        found = console.ask("POST", "/api/imports", body)
    if arguments.json:
        output.emit_json(found)
    else:
        output.emit_table(("MODEL", "FIELD", "HERE"), _rows(found["models"]))
    return _EXIT_LEFT if any(one["why"] for one in found["models"]) else 0


def _rows(models: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for one in models:
        yield from ((one["name"], each["field"], each["what"]) for each in one["became"])
        if one["why"]:
            yield one["name"], "", f"REFUSED: {one['why']}"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_FILE_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path} cannot be read: {error}.") from error
    if len(data) > MOST_FILE_BYTES:
        raise Misconfigured(f"{path} has more than {MOST_FILE_BYTES} bytes.")
    return text
