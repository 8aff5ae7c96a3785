"""Each task has an owner that awaits or cancels it: an asyncio.TaskGroup, signalbox.program.tasks, or a named place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import signalbox

ROOT = Path(signalbox.__file__).parents[1]
OWNERS = {
    "signalbox/program/tasks.py": "the owners",
    "signalbox/bus/requests.py": "two tasks of one function, which ends them",
    "signalbox/bus/writes.py": "a batch begins where another ends; close and its callers await it",
    "signalbox/ops/foreground.py": "two tasks of one function, which ends them",
    "signalbox/client/asyncclient.py": "calls in flight, which their iteration cancels and awaits",
    "gateway_plugin/upstream/server.py": "uvicorn's server, which ends by itself when told; close awaits it",
    "gateway_plugin/hooks/native/": "a call, cancelled by its client; stop awaits all",
    "workers/supervisor.py": "the worker's parts, ended in the order of its drain",
    "workers/diskcache/": "a write in a thread, awaited in its function",
    "workers/device/": "one device, ended by its lane",
    "workers/diskcache/download.py": "one write, whose end its function awaits",
    "workers/guard/": "waits for a process in its function",
    "workers/runner/": "two tasks of one function, which ends them",
    "workers/serving/": "one hold, ended by its session",
}
"""Where tasks may be made by hand, and why."""


def made(source: str) -> Iterator[str]:
    """Calls that make a task outside a task group."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            maker = ast.unparse(node.func.value)
            if node.func.attr == "ensure_future" or (
                node.func.attr == "create_task" and (maker == "asyncio" or maker.endswith(("loop", "loop()")))
            ):
                yield ast.unparse(node)


def test_tasks_are_made_by_their_owners_only() -> None:
    files = (
        file for name in ("signalbox", "gateway_plugin", "workers", "console") for file in (ROOT / name).rglob("*.py")
    )
    makers = {str(file.relative_to(ROOT)) for file in files if any(made(file.read_text()))}
    assert [name for name in makers if not name.startswith(tuple(OWNERS))] == []


def test_a_task_made_by_hand_is_seen() -> None:
    source = "asyncio.create_task(a())\nself._loop.create_task(a())\nasyncio.get_running_loop().create_task(a())\n"
    assert len(list(made(source + "asyncio.ensure_future(a())\ngroup.create_task(a())\n"))) == 4
