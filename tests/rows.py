"""``python -m tests.rows test`` or ``verify``: the tests in rows, some side by side, as ``make`` runs them.

Rows wait for different things (starts, timers, the disk, the processors), so that those side by side take little longer
than one. The longest begin first, and the next begins where one ends. The first is shown while it runs, the others when
all have ended. Every file of tests is in one.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
AT_ONCE: Final = 4
END_S: Final = 60.0
PRODUCTION: Final = ("tests/e2e/test_production.py", "tests/e2e/test_production_faults.py")
BROWSER: Final = ("tests/e2e/test_browser_console.py", "tests/e2e/test_browser_sign_on.py", "tests/e2e/day")
CORE: Final = tuple(f"tests/integration/{each}" for each in ("signalbox", "repository", "verification"))
NETWORK: Final = (
    *PRODUCTION,
    "tests/e2e/test_chaos_storm.py",
    "tests/integration/signalbox/test_host_add.py",
    "tests/integration/signalbox/test_host_unit.py",
    "tests/integration/verification/test_production_container.py",
    "tests/integration/verification/test_production_network.py",
)
WITHOUT: Final = tuple(f"--ignore={each}" for each in (*BROWSER, *NETWORK))
SHORT: Final = ("-m", "not slow")
DEEP: Final = ("-m", "slow or proof", "--depth", "full", "--timeout", "1800")


class Row(NamedTuple):
    """What one pytest runs.

    is_patient: it only computes, for minutes, and has the time that others leave. What asks other programs is not: it
    would wait for their answers longer than they are given.
    has_browser, has_interfaces: not beside one another. A browser gives up what it fetches, also from loopback, when
    interfaces of the machine come and go.
    """

    name: str
    arguments: tuple[str, ...]
    is_patient: bool = False
    has_browser: bool = False
    has_interfaces: bool = False


ROWS: Final = {
    "test": (
        Row("pages", ("tests/console", *SHORT)),
        Row("workers", ("tests/integration/workers", *SHORT)),
        Row("browser", (*BROWSER, *SHORT), has_browser=True),
        Row("core", (*CORE, *WITHOUT, *SHORT)),
        Row("whole systems", ("tests/e2e", *WITHOUT, *SHORT)),
        Row("network", (*NETWORK, *SHORT), has_interfaces=True),
        Row("gateway", ("tests/integration/gateway_plugin", *SHORT)),
        Row("rules", ("tests/unit", *SHORT)),
        Row("what callers see", ("tests/conformance", *SHORT), has_browser=True),
    ),
    "verify": (
        Row("whole systems", ("tests/e2e", *(f"--ignore={each}" for each in PRODUCTION), *DEEP), has_browser=True),
        Row("production", (*PRODUCTION, *DEEP), has_interfaces=True),
        Row("programs", ("tests", "--ignore=tests/e2e", "--ignore=tests/unit", *DEEP), has_browser=True),
        Row("proofs", ("tests/unit", *DEEP), is_patient=True),
    ),
}


def main() -> int:
    """0 when every row passed."""
    left = list(ROWS[sys.argv[1]])
    running: dict[int, tuple[Row, subprocess.Popen[bytes]]] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="signalbox-rows-") as folder:
        outputs = {row.name: Path(folder) / str(number) for number, row in enumerate(left[1:])}
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            while left or running:
                while len(running) < AT_ONCE and (row := _next(left, [row for row, _ in running.values()])):
                    left.remove(row)
                    process = _start(row, outputs.get(row.name))
                    running[process.pid] = row, process
                pid, status = os.wait()
                row, process = running.pop(pid)
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode:
                    failed.append(row.name)
                print("ended:", row.name, flush=True)
        finally:
            _end([process for _, process in running.values()])
        print("failed:", ", ".join(failed) or "none of the rows", flush=True)
        # The end of a long output is what people read.
        for name, output in sorted(outputs.items(), key=lambda each: each[0] in failed):
            print(f"\n{name}:\n{output.read_text(errors='replace')}", end="", flush=True)
    return 1 if failed else 0


def _next(left: list[Row], beside: list[Row]) -> Row | None:
    """The first that may begin now."""
    has_browser = any(row.has_browser for row in beside)
    has_interfaces = any(row.has_interfaces for row in beside)
    for row in left:
        if not ((row.has_browser and has_interfaces) or (row.has_interfaces and has_browser)):
            return row
    return None


def _start(row: Row, output: Path | None = None) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--durations", "15"]
    if row.is_patient:
        command = ["nice", "-n", "19", *command]
    with contextlib.nullcontext() if output is None else output.open("wb") as file:
        made = subprocess.Popen(
            [*command, *row.arguments],
            stdout=file,
            stderr=None if file is None else subprocess.STDOUT,
            start_new_session=True,
        )
    if row.is_patient:
        # Linux shares its processors between sessions before it looks at how nice a process is.
        with contextlib.suppress(OSError):
            Path(f"/proc/{made.pid}/autogroup").write_text("19", encoding="ascii")
    return made


def _end(rows: list["subprocess.Popen[bytes]"]) -> None:
    """As Ctrl-C would: a pytest that is interrupted, once, ends the programs that its tests have started."""
    for row in rows:
        if row.poll() is None:
            row.send_signal(signal.SIGINT)
    for row in rows:
        try:
            row.wait(END_S)
        except subprocess.TimeoutExpired:
            row.kill()


if __name__ == "__main__":
    sys.exit(main())
