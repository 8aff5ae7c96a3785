"""``python -m tests.rows test`` or ``verify``: the tests in rows, side by side, as ``make`` runs them.

Rows wait for different things (starts, timers, the disk, the processors), so that together they take little longer than
the longest. The first is shown while it runs, the others when all have ended. Every file of tests is in one.
"""

import contextlib
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
END_S: Final = 60.0
BROWSER: Final = "tests/e2e/test_browser_console.py"
SHORT: Final = ("-m", "not slow")
DEEP: Final = ("-m", "slow or proof", "--depth", "full", "--timeout", "1800")


class Row(NamedTuple):
    """What one pytest runs.

    is_patient: it only computes, for minutes, and has the time that others leave. What asks other programs is not: it
    would wait for their answers longer than they are given.
    """

    name: str
    arguments: tuple[str, ...]
    is_patient: bool = False


def _parts(letters: str) -> tuple[str, ...]:
    """The integration tests whose names begin so."""
    found = (ROOT / "tests" / "integration").glob(f"test_[{letters}]*.py")
    return tuple(sorted(str(each.relative_to(ROOT)) for each in found))


ROWS: Final = {
    "test": (
        Row("whole systems", ("tests/e2e", f"--ignore={BROWSER}", *SHORT)),
        Row("from bus to gateway", (*_parts("a-k"), "tests/conformance", *SHORT)),
        Row("from lease to worker", (*_parts("l-z"), *SHORT)),
        Row("rules and pages", ("tests/unit", "tests/console", BROWSER, *SHORT)),
    ),
    "verify": (
        Row("whole systems", ("tests/e2e", *DEEP)),
        Row("programs", ("tests", "--ignore=tests/e2e", "--ignore=tests/unit", *DEEP)),
        Row("proofs", ("tests/unit", *DEEP), is_patient=True),
    ),
}


def main() -> int:
    """0 when every row passed."""
    rows = ROWS[sys.argv[1]]
    with tempfile.TemporaryDirectory(prefix="signalbox-rows-") as folder:
        outputs = [Path(folder) / str(number) for number in range(1, len(rows))]
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        beside = [_start(row, out) for row, out in zip(rows[1:], outputs, strict=True)]
        shown = _start(rows[0])
        try:
            passed = [shown.wait() == 0]
            print("waiting for:", ", ".join(row.name for row in rows[1:]), flush=True)
            passed += [each.wait() == 0 for each in beside]
        finally:
            _end([shown, *beside])
        failed = [row.name for row, is_passed in zip(rows, passed, strict=True) if not is_passed]
        print("failed:", ", ".join(failed) or "none of the rows", flush=True)
        for row, output in zip(rows[1:], outputs, strict=True):
            print(f"\n{row.name}:\n{output.read_text(errors='replace')}", end="", flush=True)
    return 1 if failed else 0


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
