"""A PostgreSQL of the test's own, to stop and start while others use it."""

import asyncio
import os
import pwd
import secrets
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from signalbox.ops.ports import HOST, free_port
from signalbox.ops.up.child import Child, Spec
from tests.rigs.processes import gone


def programs() -> Path | None:
    """Folder of PostgreSQL's own programs, the newest there is."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


class Postgres:
    """A database cluster of the test's own, run by somebody who is not root."""

    def __init__(self, folder: Path) -> None:
        self._programs = folder
        self._folder = Path(tempfile.mkdtemp(prefix="signalbox-postgres-"))
        self._port = free_port()
        self._password = secrets.token_hex(8)
        self._drop: tuple[str, ...] = ()
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._drop = (
                "setpriv",
                f"--reuid={user.pw_uid}",
                f"--regid={user.pw_gid}",
                "--clear-groups",
                "--pdeathsig=KILL",
            )
        argv = (
            *self._drop,
            str(folder / "postgres"),
            "-D",
            str(self._folder / "data"),
            "-p",
            str(self._port),
            "-k",
            str(self._folder),
            "-c",
            f"listen_addresses={HOST}",
            "-c",
            "max_connections=40",
        )
        self._server = Child(Spec("postgres", argv, {**os.environ}, self._answers), self._folder, lambda _: None)

    @property
    def url(self) -> str:
        """For ``SIGNALBOX_CONSOLE_DATABASE_URL``."""
        return f"postgresql://signalbox:{self._password}@{HOST}:{self._port}/postgres"

    async def __aenter__(self) -> Self:
        secret = self._folder / "password"
        secret.write_text(self._password)
        secret.chmod(0o644)
        await self._run(
            "initdb",
            "-D",
            str(self._folder / "data"),
            "-U",
            "signalbox",
            "--encoding=UTF8",
            "--locale=C",
            "--auth=scram-sha-256",
            f"--pwfile={secret}",
            "--no-sync",
        )
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server.pid:
            await self.stop()
        shutil.rmtree(self._folder)

    async def start(self) -> None:
        """Take connections."""
        await self._server.start()

    async def stop(self) -> None:
        """Cut every connection and end, as a crash would."""
        pid = self._server.pid
        assert pid, f"PostgreSQL has ended by itself: {self._server.tail()}"
        os.kill(pid, signal.SIGQUIT)
        await gone(pid, 15.0)

    async def _answers(self) -> bool:
        with suppress(AssertionError):
            await self._run("pg_isready", "-h", HOST, "-p", str(self._port))
            return True
        return False

    async def _run(self, program: str, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._drop,
            self._programs / program,
            *arguments,
            cwd=self._folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, said.decode()
