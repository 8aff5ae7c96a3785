"""The commands as they are run: a process of their own, a bare folder, wrong settings."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest


def run(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """``python -m console ...`` with an empty data folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    settings = {"SIGNALBOX_CONSOLE_DATA_DIR": str(folder / "console"), **env}
    return subprocess.run(
        [sys.executable, "-m", "console", *args],
        env=clean | settings,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )


def test_bootstrap_makes_everything_once_and_can_be_repeated(tmp_path: Path) -> None:
    first = run(tmp_path, "bootstrap")
    assert first.returncode == 0, first.stderr
    password = re.search(r"Password \(shown this once\): (\S{20})", first.stdout)
    assert password
    again = run(tmp_path, "bootstrap")
    assert again.returncode == 0
    assert "Password" not in again.stdout
    secret = tmp_path / "console" / "secret_key"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    check = (
        "from console.accounts.models import User; u = User.objects.get();"
        f"print(u.username, u.role, u.check_password({password[1]!r}), u.is_superuser)"
    )
    shown = run(tmp_path, "shell", "--no-imports", "-c", check)
    assert shown.stdout.strip().splitlines()[-1] == "admin admin True False"


def test_bootstrap_takes_the_given_password_and_never_prints_it(tmp_path: Path) -> None:
    given = "a given and very long password"
    done = run(tmp_path, "bootstrap", SIGNALBOX_CONSOLE_ADMIN_PASSWORD=given)
    assert done.returncode == 0, done.stderr
    assert given not in done.stdout + done.stderr


def test_check_config_prints_settings_without_secrets(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "serve",
        "--check-config",
        SIGNALBOX_KEY_PEPPER="hush-hush",
        SIGNALBOX_CONSOLE_DATABASE_URL="postgresql://u:hush-hush@db/c",
    )
    assert done.returncode == 0
    assert "SIGNALBOX_CONSOLE_LISTEN=127.0.0.1:8000" in done.stdout
    assert "hush-hush" not in done.stdout


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SIGNALBOX_CONSOLE_LISTN", "x"),
        ("SIGNALBOX_CONSOLE_SESSION_S", "soon"),
        ("SIGNALBOX_CONSOLE_PROJECTOR_BATCH", "0"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_starts(tmp_path: Path, name: str, value: str) -> None:
    done = run(tmp_path, "serve", **{name: value})
    assert done.returncode == 2
    assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_migrations_are_complete(tmp_path: Path) -> None:
    done = run(tmp_path, "makemigrations", "--check", "--dry-run", "--skip-checks")
    assert done.returncode == 0, done.stdout


def test_the_production_checks_of_django_pass_over_https(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "check",
        "--deploy",
        "--fail-level",
        "WARNING",
        SIGNALBOX_CONSOLE_IS_HTTPS="on",
        SIGNALBOX_CONSOLE_SECRET_KEY="x" * 30 + "abcdefghijklmnopqrstuvwxyz",
    )
    assert done.returncode == 0, done.stderr
