"""The signalbox command, as an operator types it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from signalbox.bus.client import Bus
from signalbox.ops import cli
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer


async def run(*arguments: str, **env: str) -> tuple[int, str, str]:
    """Exit status, output and errors of ``python -m signalbox``."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "signalbox",
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean | env,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_topology_is_applied_then_as_declared_then_found_different(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "nats") as nats:
        env = {"SIGNALBOX_NATS_URL": nats.url}
        assert "created JOBS" in (await run("topology", "apply", **env))[1]
        assert await run("topology", "check", **env) == (0, "as declared\n", "")
        bus = await Bus.connect(Wire(nats_url=nats.url), role="admin")
        await bus.request_json("$JS.API.STREAM.DELETE.DLQ")
        await bus.close()
        status, out, _ = await run("topology", "check", **env)
        assert (status, out) == (1, "stream DLQ does not exist\n")
        assert (await run("topology", "apply", **env))[:2] == (0, "created DLQ\n")
        assert (await run("topology", "apply", **env))[1] == "as declared; nothing to do\n"


async def test_faults_are_said_in_words_without_a_traceback() -> None:
    away = {"SIGNALBOX_NATS_URL": "nats://127.0.0.1:1", "SIGNALBOX_CONNECT_TIMEOUT_S": "0.2"}
    status, _, err = await run("topology", "check", **away)
    assert status == 2
    assert err.startswith("signalbox: NATS cannot be reached at nats://127.0.0.1:1")
    assert "Traceback" not in err
    status, _, err = await run("topology", "check", SIGNALBOX_NATS_URI="x")
    assert status == 2
    assert "did you mean SIGNALBOX_NATS_URL?" in err


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    def explained(*command: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main([*command, "--help"])
        assert ended.value.code == 0
        return capsys.readouterr().out

    every = explained()
    for command in ("topology", "backup", "restore", "nats-users", "dead", "up", "demo"):
        assert command in every
        assert explained(command).startswith(f"usage: signalbox {command}")


async def test_the_printed_users_are_what_a_server_takes(tmp_path: object) -> None:
    _, out, _ = await run("nats-users", "--reader", "acme", "--reader", "acme")
    assert out.count('reader-acme"') == 1
    config = f"{tmp_path}/nats.conf"
    with open(config, "w", encoding="utf-8") as file:  # noqa: ASYNC230, PTH123  a test may block
        file.write(f"port: -1\n{out}")
    from signalbox.ops.natsserver import binary

    wanted = ["GATEWAY", "WORKER", "CONSOLE", "OUTBOUND", "HOST", "ADMIN", "READER_ACME"]
    wanted += ["GATEWAY_QUEUES", "OUTBOUND_QUEUES", "ADMIN_QUEUES"]
    passwords = {f"NATS_{role}_PASSWORD": "p" for role in wanted}
    process = await asyncio.create_subprocess_exec(binary(), "-t", "-c", config, env=passwords)
    assert await process.wait() == 0


async def test_commands_of_admins_import_no_http_client() -> None:
    """Each command imports what it needs; compose applies the topology in an image of a program."""
    text = "import sys; sys.modules['httpx'] = None; from signalbox.ops.cli import main; sys.exit(main(sys.argv[1:]))"
    for command in ("topology", "doctor", "dead", "backup"):
        done = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", text, command, "--help"), stdout=subprocess.DEVNULL
        )
        assert await done.wait() == 0, command
