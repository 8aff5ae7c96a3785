"""Writes the pages that are made from code: settings, errors, metrics and doctor. Run: ``python docs/generate.py``.

A test compares the pages with what this makes, so a new setting, error or metric is not merged undocumented.
"""

# ruff: noqa: INP001  a script beside the pages it writes, not a package

import ast
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import django
import grimp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from console.config import PREFIX as CONSOLE
from console.config import ConsoleSettings
from console.feed.queuegauges import MOST as MOST_QUEUES
from gateway_plugin.outbound.settings import PREFIX as OUTBOUND
from gateway_plugin.outbound.settings import OutboundSettings
from gateway_plugin.settings import PREFIX as GATEWAY
from gateway_plugin.settings import GatewaySettings
from signalbox.front.bounds import HttpBounds
from signalbox.ops.doctor.main import catalog_page
from signalbox.ops.host.settings import PREFIX as HOST
from signalbox.ops.host.settings import HostSettings
from signalbox.program import errors, settings
from signalbox.program.errors import MEANINGS, Meaning, SignalboxError
from signalbox.program.metrics import MOST_BYTES, MOST_MODELS, REGISTRY, full_name
from signalbox.program.metrics import PREFIX as METRIC
from signalbox.program.settings import Setting, Wire
from workers.settings import PREFIX as WORKER
from workers.settings import WorkerSettings

FOLDER = Path(__file__).resolve().parent
SECTIONS: Sequence[tuple[str, type[Wire], str]] = (
    ("Every program", Wire, settings.PREFIX),
    ("HTTP listeners of gateway plugin and console", HttpBounds, "SIGNALBOX_{GATEWAY,CONSOLE}_"),
    ("Gateway plugin", GatewaySettings, GATEWAY),
    ("Outbound", OutboundSettings, OUTBOUND),
    ("Worker", WorkerSettings, WORKER),
    ("Host", HostSettings, HOST),
    ("Console, projector and controller", ConsoleSettings, CONSOLE),
)
PROGRAMS: Sequence[tuple[str, str]] = (
    ("gateway_plugin", "Gateway plugin"),
    ("workers", "Worker"),
    ("console", "Console"),
)


def settings_page() -> str:
    """docs/settings.md."""
    tables = "\n".join(_settings_tables())
    tools = "\n".join(f"| `{name}` | {text} |" for name, text in sorted(settings.TOOL_VARIABLES.items()))
    return f"""# Settings

Each program reads its settings once, from the environment, and refuses to start on a value that does not fit or a
`SIGNALBOX_` name it does not know (it says which it takes you to mean). See what a program would run with:

```sh
python -m workers --check-config
```

- Every variable may end in `_FILE` and then names a file that holds the value; do so for secrets.
- Lists are comma-separated. Booleans are `on` or `off`.
- Secrets are shown as `(set)`.

{tables}
## Tools and tests

| variable | meaning |
|---|---|
{tools}

This page is made by `python docs/generate.py`."""


def _settings_tables() -> Iterator[str]:
    """A table for each section, without the fields of the sections before that it extends."""
    for number, (title, cls, prefix) in enumerate(SECTIONS):
        bases = [base for _, base, _ in SECTIONS[:number] if issubclass(cls, base)]
        shown = {(s.field, s.default) for base in bases for s in settings.declared(base, prefix)}
        rows = "\n".join(
            f"| `{s.name}` | {_type_name(s.type)} | {_default_cell(s)} | {s.description} |"
            for s in settings.declared(cls, prefix)
            if (s.field, s.default) not in shown
        )
        yield f"## {title}\n\n| variable | type | default | meaning |\n|---|---|---|---|\n{rows}\n"


def _default_cell(setting: Setting) -> str:
    text = settings.shown(setting.default)
    return f"`{text}`" if text else "empty"


def _type_name(type_: Any) -> str:
    bare = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    if get_origin(bare) is tuple:
        return "list"
    if get_args(bare):
        return " or ".join(str(getattr(a, "__name__", a)) for a in get_args(bare))
    return str(getattr(bare, "__name__", bare))


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
        if isinstance(value, type) and issubclass(value, SignalboxError) and value is not SignalboxError:
            found.setdefault(value.code, value)
    return found


def metrics_page() -> str:
    """docs/metrics.md."""
    makers = dict(_metric_makers())
    _load(set(makers.values()))
    graph = grimp.build_graph(*(package for package, _ in PROGRAMS), "signalbox")
    tables: dict[str, list[str]] = {}
    for family in sorted(REGISTRY.collect(), key=lambda each: each.name):
        shown = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in _labels(family.name))
        users = graph.find_downstream_modules(makers[family.name]) | {makers[family.name]}
        served = [title for package, title in PROGRAMS if any(m.startswith(f"{package}.") for m in users)]
        section = "Every program" if len(served) == len(PROGRAMS) else " and ".join(served)
        tables.setdefault(section, []).append(f"| `{shown}` | {family.type} | {labels} | {family.documentation} |")
    order = ["Every program", *(title for _, title in PROGRAMS)]
    sections = "\n\n".join(
        f"## {title}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n" + "\n".join(rows)
        for title, rows in sorted(
            tables.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)
        )
    )
    return f"""# Metrics

Each program serves its own metrics for Prometheus at `/metrics`, on `SIGNALBOX_METRICS_PORT` and
`SIGNALBOX_METRICS_HOST`; without a port it serves none. Every name begins with `{METRIC}`, but for those that stand in
for TFServingCache's. A histogram has `_bucket`, `_sum` and `_count`. The console's table is that of `console serve`,
`projector` and `controller` together. The alarms to set are in [operations.md](operations.md#metrics-and-alarms).

Labels are bounded: a model is one, a job never is. A scrape stays below 1 MB, whatever there is: where the series of
single models would take more than {MOST_BYTES} bytes of it, those of the metric that takes the most end, and its
label `model` becomes `all_models`, and `version` `-1`, until the program is started again; the log says so
(`metrics.models_joined`). In a program that has counted more than {MOST_MODELS} models, or {4 * MOST_MODELS} of their
versions, every metric's does. Of the queues the {MOST_QUEUES} longest have series of their own, and `all_models` is the
sum of the others.

{sections}

This page is made by `python docs/generate.py`."""


def _metric_makers() -> Iterator[tuple[str, str]]:
    """Name of each metric family, and the module that makes it; read from the source, so that none is forgotten."""
    root = FOLDER.parent
    for package in ("signalbox", *(package for package, _ in PROGRAMS)):
        for path in sorted((root / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "metrics." not in text:
                continue
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            for node in ast.walk(ast.parse(text)):
                match node:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name("metrics"), attr="counter" | "gauge" | "histogram"),
                        args=[ast.Constant(str(name)), *_],
                    ):
                        yield full_name(name), module


def _load(modules: set[str]) -> None:
    """Import them, so that their metrics are in the registry. The console's need Django."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    django.setup()
    for module in sorted(modules):
        importlib.import_module(module)


def _labels(family: str) -> tuple[str, ...]:
    """The labels of a family. Prometheus' client tells them only of families that have a sample."""
    made = REGISTRY._names_to_collectors[family]  # noqa: SLF001  the client has no public way
    return tuple(made._labelnames)  # type: ignore[attr-defined]  # noqa: SLF001  likewise


def doctor_page() -> str:
    """docs/doctor.md."""
    return f"""# What `signalbox doctor` finds

It examines the `SIGNALBOX_*` variables it is started with, the NATS server they lead to, files of NATS and Tyk
(`--files`), secrets and this machine. With `--production` it exits with 1 if anything of medium or high severity is
neither mended nor accepted; what a deployment accepts it accepts by id, with a reason in words, in a file
(`--accept`; see `deploy/doctor.toml`). `--json` is for programs.

{catalog_page()}

This page is made by `python docs/generate.py`."""


PAGES = {"settings.md": settings_page, "errors.md": errors_page, "metrics.md": metrics_page, "doctor.md": doctor_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page() + "\n", encoding="utf-8")
