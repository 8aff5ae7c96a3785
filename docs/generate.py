"""Writes the pages that are made from code: settings.md, errors.md and doctor.md. Run: ``python docs/generate.py``.

A test compares the pages with what this makes, so a new setting or error is not merged undocumented.
"""

# ruff: noqa: INP001  a script beside the pages it writes, not a package

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from console.config import PREFIX as CONSOLE
from console.config import Console
from gateway_plugin.edge.settings import EdgeSettings
from gateway_plugin.settings import PREFIX as GATEWAY
from gateway_plugin.settings import GatewaySettings
from signalbox.ops.doctor.main import catalog_page
from signalbox.program import errors, settings
from signalbox.program.errors import MEANINGS, Meaning, SignalboxError
from signalbox.program.settings import Wire
from workers.settings import PREFIX as WORKER
from workers.settings import WorkerSettings

FOLDER = Path(__file__).resolve().parent
SECTIONS: Sequence[tuple[str, type[Wire], str]] = (
    ("Every program", Wire, settings.PREFIX),
    ("Gateway plugin", GatewaySettings, GATEWAY),
    ("Edge as a program of its own", EdgeSettings, "SIGNALBOX_EDGE_"),
    ("Worker", WorkerSettings, WORKER),
    ("Console, projector and controller", Console, CONSOLE),
)


def settings_page() -> str:
    """docs/settings.md."""
    return f"""# Settings

Each program reads its settings once, from the environment, and refuses to start on a value that does not fit or a
`SIGNALBOX_` name it does not know (it says which it takes you to mean). See what a program would run with:

```sh
python -m workers --check-config
```

- Every variable may end in `_FILE` and then names a file that holds the value; do so for secrets.
- Lists are comma-separated. Booleans are `on` or `off`.
- Secrets are shown as `(set)`.

{settings.reference(SECTIONS)}
This page is made by `python docs/generate.py`."""


def errors_page() -> str:
    """docs/errors.md."""
    rows = "\n".join(_row(code, meaning) for code, meaning in MEANINGS.items())
    return f"""# Errors

Every error has a stable code. On our own paths the answer is `application/problem+json` with it
in `code`; on TensorFlow Serving's paths it is `{{"error": ...}}`, as its clients expect. `retry` says
whether the same request may succeed later; such an answer carries `Retry-After`.

| code | HTTP | gRPC | retry | meaning |
|---|---|---|---|---|
{rows}

`unavailable` promises that nothing was accepted. `ambiguous` promises nothing: ask again with the
same id (or idempotency key), and at most one job comes of it.

This page is made by `python docs/generate.py`."""


def _row(code: str, meaning: Meaning) -> str:
    found = _classes().get(code)
    retry = "yes" if found is not None and found.is_retryable else "no"
    text = (found.__doc__ or "").splitlines()[0] if found is not None else meaning.title + "."
    return f"| `{code}` | {meaning.http} | `{meaning.grpc}` | {retry} | {text} |"


def _classes() -> dict[str, type[SignalboxError]]:
    """The class that stands for each code; one that inherits its code leaves it to its parent."""
    found: dict[str, type[SignalboxError]] = {}
    for value in vars(errors).values():
        if (
            isinstance(value, type)
            and issubclass(value, SignalboxError)
            and value is not SignalboxError
        ):
            found.setdefault(value.code, value)
    return found


def doctor_page() -> str:
    """docs/doctor.md."""
    return f"""# What `signalbox doctor` finds

It examines the `SIGNALBOX_*` variables it is started with, the NATS server they lead to, files of NATS and Tyk
(`--files`), secrets and this machine. With `--production` it exits with 1 if anything of medium or high severity is
neither mended nor accepted; what a deployment accepts it accepts by id, with a reason in words, in a file
(`--accept`; see `deploy/doctor.toml`). `--json` is for programs.

{catalog_page()}

This page is made by `python docs/generate.py`."""


PAGES = {"settings.md": settings_page, "errors.md": errors_page, "doctor.md": doctor_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page() + "\n", encoding="utf-8")
