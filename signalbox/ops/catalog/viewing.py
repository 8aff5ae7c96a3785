"""``signalbox models list | show``."""

import argparse
from collections.abc import Iterator
from typing import Any, Final

from signalbox.ops import output
from signalbox.ops.catalog.answers import add_model, path_of
from signalbox.ops.http import Rest

_PAGE: Final = 200
_STATES: Final = (
    "ready",
    "loading",
    "fetching",
    "cold",
    "waiting",
    "failed",
    "lost",
    "paused",
    "disabled",
    "none",
    "pending",
    "error",
    "unknown",
)
_SETTINGS: Final = (
    "replicas",
    "autoscale",
    "autoscale_min",
    "autoscale_max",
    "queue_backlog",
    "target_wait_s",
    "scale_tolerance",
    "scale_up_window_s",
    "scale_down_window_s",
    "scale_to_zero_grace_s",
    "scale_up_activation",
    "rows_independent",
    "max_batch_size",
    "max_batch_delay_ms",
    "max_delivery",
    "timeout_s",
    "deadline_s",
    "sync_wait_s",
    "max_queue",
    "max_payload_bytes",
)


def add_acts(acts: Any) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the acts."""
    listed = acts.add_parser(
        "list",
        help="Models by name: which version callers get, and how the fleet serves it now.",
        epilog="Examples:\n\n  signalbox models list\n  signalbox models list digits --json\n  signalbox models list "
        "--deleted",
    )
    listed.add_argument("q", nargs="?", default="", metavar="TEXT", help="Part of a name or of a description.")
    listed.add_argument("--state", choices=_STATES, default="", metavar="STATE", help=f"One of {', '.join(_STATES)}.")
    listed.add_argument("--repository", default="", metavar="NAME", help="Those it brought; -: those people added.")
    listed.add_argument("--deleted", action="store_true", help="What was deleted and can be brought back.")
    listed.set_defaults(catalog_act=_list)
    yield listed
    shown = acts.add_parser(
        "show",
        help="All that is known of a model, or of one of its versions.",
        epilog="Examples:\n\n  signalbox models show digits\n  signalbox models show digits 3   # its files and digest",
    )
    add_model(shown)
    shown.add_argument("version", nargs="?", type=int, metavar="VERSION", help="Its files and digest.")
    shown.set_defaults(catalog_act=_show)
    yield shown


def _list(console: Rest, arguments: argparse.Namespace) -> int:
    if arguments.deleted:
        return _list_deleted(console, arguments)
    query = {"q": arguments.q, "repository": arguments.repository, "state": arguments.state}
    found = list(_pages(console, query))
    if arguments.json:
        output.emit_json(found)
        return 0
    rows = [
        (
            one["name"],
            one["served_version"] if one["served_version"] is not None else one["serving_version"],
            [str(each["number"]) for each in one["versions"]],
            [f"{label}={number}" for label, number in sorted(one["labels"].items())],
            one["condition"],
            one["repository"],
        )
        for one in found
    ]
    output.emit_table(("MODEL", "SERVES", "VERSIONS", "LABELS", "STATE", "REPOSITORY"), rows, "no model")
    return 0


def _pages(console: Rest, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
    after = ""
    with output.Progress("models") as progress:
        while True:
            page = console.ask("GET", "/api/models", query={**query, "after": after, "size": _PAGE})
            progress.advance(len(page["models"]))
            yield from page["models"]
            after = page["after"]
            if not after:
                return


def _list_deleted(console: Rest, arguments: argparse.Namespace) -> int:
    found = console.ask("GET", "/api/deleted")
    if arguments.json:
        output.emit_json(found)
        return 0
    rows = [
        (one["kind"], one["name"], one["version"], one["deleted_at"], one["deleted_by"], one["until"]) for one in found
    ]
    headings = ("KIND", "NAME", "VERSION", "DELETED", "BY", "CAN BE UNDONE UNTIL")
    output.emit_table(headings, rows, "nothing that can be brought back")
    return 0


def _show(console: Rest, arguments: argparse.Namespace) -> int:
    if arguments.version is not None:
        found = console.ask("GET", path_of(arguments.model, "versions", arguments.version, "files"))
    else:
        found = console.ask("GET", path_of(arguments.model))
    if arguments.json:
        output.emit_json(found)
    elif arguments.version is not None:
        output.emit_fields((name, found[name]) for name in ("place", "digest", "host", "listed_at", "size_bytes"))
        print()
        output.emit_table(("FILE", "BYTES"), [(one["path"], one["size_bytes"]) for one in found["files"]])
    else:
        _print_model(found)
    return 0


def _print_model(model: dict[str, Any]) -> None:
    policy = model["policy"]
    output.emit_fields(
        (
            ("model", model["name"]),
            ("description", model["description"]),
            ("state", model["condition"]),
            ("unpublished", model["unpublished"]),
            ("serves", f"version {model['serving_version']}" if model["serving_version"] is not None else "no version"),
            ("chosen", model["default_version"] if model["default_version"] is not None else "the newest version"),
            ("policy", " ".join(str(value) for value in policy.values())),
            ("labels", [f"{label}={number}" for label, number in sorted(model["labels"].items())]),
            ("repository", model["repository"]),
            ("lies in", model["base_path"]),
            *((name, model[name]) for name in _SETTINGS),
        )
    )
    print()
    rows = [
        (
            one["number"],
            one["size_bytes"],
            one["source"],
            one["added_by"],
            one["added_at"],
            model["unserved"].get(str(one["number"]), ""),
        )
        for one in model["versions"]
    ]
    output.emit_table(("VERSION", "BYTES", "FROM", "ADDED BY", "AT", "NOT SERVED BECAUSE"), rows, "no version")
