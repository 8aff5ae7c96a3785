"""``make images``: build the images, start each program from its image's root, write down what was built."""

import argparse
import contextlib
import shutil
import sys
import time
from pathlib import Path
from typing import Final

import signalbox
from signalbox.ops import foreground
from signalbox.program.errors import SignalboxError
from verification.images import record
from verification.images.build import Builder, need, revision
from verification.images.stack import Image, ImageStack

_FOLDER: Final = Path("build/images")


def main() -> int:
    """Returns the exit status; faults are said in words."""
    parser = argparse.ArgumentParser(prog="python -m verification.images", description=__doc__)
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="buildah's storage and all else (%(default)s)")
    parser.add_argument(
        "--images", default=",".join(record.BUILT), help="which to build; started where these are all (%(default)s)"
    )
    parser.add_argument("--base", default="", help="base image that buildah has; empty = a root of Debian's packages")
    parser.add_argument("--mirror", default="", help="where mmdebstrap fetches; empty = Debian's own choice")
    parser.add_argument("--new-base", action="store_true", help="make the root of Debian's packages anew")
    parser.add_argument(
        "--record", type=Path, default=Path(record.RECORD), help="where to write what was built (%(default)s)"
    )
    options = parser.parse_args()
    say = foreground.Sayer()
    try:
        need("buildah", "mmdebstrap", "unshare")
        builder = Builder(options.folder, revision=revision(), version=signalbox.__version__)
        made_of = {target: record.inputs(target) for target in record.BUILT}
        base = options.base or builder.base(options.mirror, anew=options.new_base)
        say(f"base: {base}, {record.mib(builder.size_bytes(base))} MiB")
        names: dict[str, str] = {}
        for target in options.images.split(","):
            began = time.monotonic()
            names[target] = builder.build(target, base)
            size = record.mib(builder.size_bytes(names[target]))
            say(f"{names[target]}: {size} MiB, built in {time.monotonic() - began:.0f} s")
        if not set(record.BUILT) <= set(names):
            return 0
        status = _start(builder, names, options.folder)
        if not status and not options.base:
            _write(builder, base, names, made_of, options.record)
            say(f"{options.record} says what was built")
    except SignalboxError as error:
        print(f"images: {error.public_message}", file=sys.stderr)
        return 1
    return status


def _start(builder: Builder, names: dict[str, str], folder: Path) -> int:
    with contextlib.ExitStack() as roots:
        images = {
            target: Image(root=roots.enter_context(builder.root(name)), config=builder.config(name))
            for target, name in names.items()
        }
        data = folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        return foreground.run("images", data, lambda held, say: ImageStack(held, say, images), _prove)


async def _prove(stack: ImageStack) -> None:
    await stack.check_configurations()
    await stack.start_all()
    answer = await stack.predict()
    stack.say(f"a job through the edge, from images alone: {answer}")
    stack.say(f"no root, no capability, a read-only root: {', '.join(stack.confined())}")


def _write(builder: Builder, base: str, names: dict[str, str], made_of: dict[str, str], path: Path) -> None:
    images = {target: record.built(target, made, builder.size_bytes(names[target])) for target, made in made_of.items()}
    record.write(record.Record(base_mib=record.mib(builder.size_bytes(base)), images=images), path)


if __name__ == "__main__":
    sys.exit(main())
