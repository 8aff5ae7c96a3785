"""The console's own tests once more, on a real PostgreSQL: what SQLite allows, it may refuse."""

import getpass
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FEWEST = 300
pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(1800)]


def programs() -> Path | None:
    """Folder of PostgreSQL's programs: on the path, or where Debian keeps them."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


@pytest.fixture
def database() -> Iterator[str]:
    """URL of a fresh server that listens on a socket in its own folder only."""
    bin_folder = programs()
    if bin_folder is None:
        pytest.skip("PostgreSQL is not installed")
    # It refuses to run as root, as which containers like to run tests.
    user = "postgres" if os.getuid() == 0 else getpass.getuser()
    folder = Path(tempfile.mkdtemp(prefix="signalbox-pg-"))

    def run(*command: str) -> None:
        subprocess.run(
            [str(bin_folder / command[0]), *command[1:]],
            check=True,
            capture_output=True,
            timeout=120,
            user=user if os.getuid() == 0 else None,
            cwd="/",
        )

    try:
        if os.getuid() == 0:
            shutil.chown(folder, user)
        run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "console", "--no-sync")
        settings = (
            f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
            " -c synchronous_commit=off -c full_page_writes=off"  # nothing here outlives the test
        )
        run("pg_ctl", "-D", str(folder / "data"), "-l", str(folder / "log"), "-o", settings, "-w", "start")
        try:
            yield f"postgresql://console@{str(folder).replace('/', '%2F')}/postgres"
        finally:
            run("pg_ctl", "-D", str(folder / "data"), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_everything_that_touches_the_database_also_holds_on_postgresql(database: str) -> None:
    """``-m django_db``: see conftest. Programs that a test starts keep a SQLite file of their own."""
    # By a signal, which fails the test that hangs and names it; a thread would end all of them without a word.
    limits = ("--timeout", "300", "--timeout-method", "signal", "-m", "django_db and not slow")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *limits, str(FOLDER)],
        check=False,
        capture_output=True,
        text=True,
        timeout=1700,
        cwd=FOLDER.parents[1],
        env={**os.environ, "SIGNALBOX_CONSOLE_DATABASE_URL": database},
    )
    failed = [line[:500] for line in done.stdout.splitlines() if line.startswith(("E  ", "FAILED", "ERROR"))]
    assert done.returncode == 0, "\n".join(failed) or done.stdout[-4000:]
    said = re.search(r"(\d+) passed", done.stdout)
    assert said, done.stdout[-400:]
    assert int(said.group(1)) >= FEWEST, "a marker was lost, and with it most tests"
