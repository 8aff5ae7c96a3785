"""The options of ``signalbox up``."""

import argparse
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program.errors import InvalidRequest
from signalbox.repositories.location import Location

FRONTS: Final = ("auto", "edge", "tyk")
USUAL_FRONT_PORT: Final = 8080
USUAL_CONSOLE_PORT: Final = 8000
USUAL_NATS_PORT: Final = 4222
USUAL_GRPC_PORT: Final = 8500
"""TensorFlow Serving's own."""


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run and where. A port of None is the usual one when free; 0 is any free one.

    model_folders: models may be registered from these besides the stack's own. repositories: URLs whose models are
    noticed and served, for everybody. uploads: URL where the console keeps what is uploaded; empty = a folder of data.
    """

    data: Path = Path(".signalbox")
    workers: int = 2
    devices: tuple[str, ...] = ("cpu:0",)
    front: str = "auto"
    front_port: int | None = None
    grpc_port: int | None = None
    console_port: int | None = None
    nats_port: int | None = None
    model_folders: tuple[Path, ...] = ()
    repositories: tuple[str, ...] = ()
    uploads: str = ""
    has_demo: bool = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options on an argument parser."""
    usual = UpOptions()
    parser.add_argument("--data", type=Path, default=usual.data, help="data folder (%(default)s)")
    parser.add_argument("--workers", type=_count, default=usual.workers, help="worker processes (%(default)s)")
    parser.add_argument(
        "--devices",
        default=",".join(usual.devices),
        help="comma list that the workers share in turn: cpu:N or a GPU's UUID (%(default)s)",
    )
    parser.add_argument(
        "--front",
        choices=FRONTS,
        default=usual.front,
        help="tyk: a real gateway (SIGNALBOX_TYK_BIN or on the path, with redis-server); edge: the "
        "embedded stand-in; auto: tyk where there is one (%(default)s)",
    )
    parser.add_argument("--port", type=_port, help=f"front ({USUAL_FRONT_PORT}, 0 = any free one)")
    parser.add_argument("--grpc-port", type=_port, help=f"gRPC where no Tyk is in front ({USUAL_GRPC_PORT})")
    parser.add_argument("--console-port", type=_port, help=f"console ({USUAL_CONSOLE_PORT})")
    parser.add_argument("--nats-port", type=_port, help=f"NATS ({USUAL_NATS_PORT})")
    parser.add_argument(
        "--ports",
        choices=("usual", "any"),
        default="usual",
        help="any: let the system choose every port not given (%(default)s)",
    )
    parser.add_argument(
        "--models",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="models may be registered from below this folder too; what runs them reads nothing else"
        " (may be given more than once)",
    )
    parser.add_argument(
        "--repository",
        type=_repository,
        action="append",
        default=[],
        metavar="URL",
        help="serve every model found there, and what comes later: file:///folder, s3://bucket/prefix, gs://, az://;"
        " keys and endpoint as their own tools take them (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL)"
        " (may be given more than once)",
    )
    parser.add_argument(
        "--uploads",
        type=_bucket,
        metavar="URL",
        help="keep what is uploaded in the console there: s3://bucket/prefix, gs://, az:// (a folder below --data)",
    )
    parser.add_argument("--no-demo", action="store_true", help="no demonstration models, key and prediction")


def parsed(arguments: argparse.Namespace) -> UpOptions:
    """The options as given on a command line."""
    unset = 0 if arguments.ports == "any" else None

    def port(given: int | None) -> int | None:
        return unset if given is None else given

    return UpOptions(
        data=arguments.data,
        workers=arguments.workers,
        devices=tuple(filter(None, map(str.strip, arguments.devices.split(",")))) or UpOptions().devices,
        front=arguments.front,
        front_port=port(arguments.port),
        grpc_port=port(arguments.grpc_port),
        console_port=port(arguments.console_port),
        nats_port=port(arguments.nats_port),
        model_folders=tuple(arguments.models),
        repositories=tuple(dict.fromkeys(arguments.repository)),
        uploads=arguments.uploads or UpOptions().uploads,
        has_demo=not arguments.no_demo,
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError("must be a port, 0 to 65535")
    return number


def _repository(text: str) -> str:
    """The URL of a repository, as the console keeps it."""
    location = _location(text)
    if location.is_local and not location.folder.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: {location.folder} is no folder on this machine.")
    return location.url


def _bucket(text: str) -> str:
    location = _location(text)
    if location.is_local:
        raise argparse.ArgumentTypeError(f"{text!r}: name a bucket; without it a folder below --data is used.")
    return location.url


def _location(text: str) -> Location:
    try:
        return Location.parse(text)
    except InvalidRequest as error:
        is_path = "://" not in text
        hint = f" For a folder: file://{Path(text).expanduser().absolute()}." if is_path else ""
        raise argparse.ArgumentTypeError(f"{text!r}: {error.public_message}{hint}") from error
