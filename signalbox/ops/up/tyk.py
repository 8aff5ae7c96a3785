"""A real Tyk gateway in front, with Redis and the plugin behind a unix socket, on the files of ``tyk/``.

What differs on this machine (ports, paths, Redis, where the plugin is) goes in as ``TYK_GW_`` variables,
which override ``tyk.conf`` field by field; the files themselves are those of a deployment.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from signalbox.ops import probes, tykapps
from signalbox.ops.ports import HOST, free_port
from signalbox.ops.up.child import Spec
from signalbox.ops.up.datadir import write_private
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import Misconfigured

OLDEST: Final = (5, 13)
VERSION_S: Final = 20.0
_PLUGIN: Final = "plugin:"
"""Where a deployment's definitions find the plugin."""


class Programs(NamedTuple):
    """What a Tyk front needs on this machine. version: as Tyk tells it."""

    tyk: str
    redis: str
    version: str


def find(front: str) -> Programs | None:
    """The programs of a Tyk front, or None where the edge shall do.

    front: ``auto``, ``edge`` or ``tyk``. Raises :class:`Misconfigured` when a Tyk front was asked for, with
    ``--front tyk`` or ``SIGNALBOX_TYK_BIN``, and cannot be had.
    """
    named = os.environ.get("SIGNALBOX_TYK_BIN", "")
    if front == "edge":
        return None
    is_asked = front == "tyk" or bool(named)
    tyk, redis = shutil.which(named or "tyk"), shutil.which("redis-server")
    if tyk and redis:
        return Programs(tyk, redis, _version(tyk))
    if not is_asked:
        return None
    if not tyk:
        where = f"SIGNALBOX_TYK_BIN={named} is no program" if named else "there is no tyk on the path"
        raise Misconfigured(f"A Tyk front was asked for, but {where}. --front edge needs none.")
    raise Misconfigured("A Tyk front needs redis-server (on Debian: apt-get install redis-server).")


class Tyk:
    """Starts the three programs of a Tyk front.

    plugin: module to run instead of ours, given the socket's path; a benchmark measures another.
    """

    def __init__(self, stack: UpStack, programs: Programs, *, plugin: str = "") -> None:
        self._stack = stack
        self._programs = programs
        self._plugin = plugin
        self._redis_port = free_port()
        self._control_port = free_port()
        self._socket = stack.data.path / "plugin.sock"
        self._targets = {"h2c": free_port(), "http": free_port()}

    async def start(self) -> None:
        """Redis, plugin, Tyk, each ready before the next."""
        self._warn_of_version()
        await self._start_redis()
        await self._start_plugin()
        await self._start_tyk()

    def _warn_of_version(self) -> None:
        found = re.search(r"v?(\d+)\.(\d+)", self._programs.version)
        if found is None or (int(found[1]), int(found[2])) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            self._stack.say(
                f"this Tyk calls itself {self._programs.version!r}; releases before {oldest} answer "
                "401 or 403 when the plugin is away"
            )

    async def _start_redis(self) -> None:
        folder = self._stack.data.path / "redis"
        folder.mkdir(exist_ok=True)
        options = {"bind": HOST, "port": self._redis_port, "dir": folder, "save": "60 1"}
        argv = [self._programs.redis]
        for name, value in options.items():
            argv += [f"--{name}", str(value)]
        connect = partial(asyncio.open_connection, HOST, self._redis_port)
        ready = partial(probes.says, connect, b"+PONG", asked=b"PING\r\n")
        await self._stack.start(Spec("redis", tuple(argv), dict(os.environ), ready))

    async def _start_plugin(self) -> None:
        env = {
            **self._stack.env("gateway"),
            "SIGNALBOX_GATEWAY_LISTEN": f"unix://{self._socket}",
            "SIGNALBOX_GATEWAY_EDGE_LISTEN": "",
            "SIGNALBOX_GATEWAY_GRPC_LISTEN": f"{HOST}:{self._targets['h2c']}",
            "SIGNALBOX_GATEWAY_UPSTREAM_LISTEN": f"{HOST}:{self._targets['http']}",
            "SIGNALBOX_GATEWAY_SECRET_FILE": str(self._stack.data.secret("plugin")),
        }
        module = (self._plugin, str(self._socket)) if self._plugin else ("gateway_plugin",)
        ready = partial(probes.says, partial(asyncio.open_unix_connection, self._socket))
        await self._stack.start(self._stack.spec("gateway", *module, env=env, ready=ready))

    async def _start_tyk(self) -> None:
        files, data = tykapps.APPS.parent, self._stack.data
        home = data.path / "tyk"
        home.mkdir(exist_ok=True)
        self._write_definitions(files / "apps", home / "apps")
        secret = data.secret("tyk").read_text()
        fields = {
            "LISTENADDRESS": HOST,
            "LISTENPORT": free_port(),  # without an API: docs/tyk.md, "Ports"
            "CONTROLAPIPORT": self._control_port,
            "SECRET": secret,
            "NODESECRET": secret,
            "APPPATH": home / "apps",
            "TEMPLATEPATH": files / "templates",
            "PIDFILELOCATION": home / "tyk.pid",
            "STORAGE_HOST": HOST,
            "STORAGE_PORT": self._redis_port,
            "COPROCESSOPTIONS_COPROCESSGRPCSERVER": f"unix://{self._socket}",
        }
        env = {name: value for name, value in os.environ.items() if not name.startswith("TYK_")}
        env |= {f"TYK_GW_{name}": str(value) for name, value in fields.items()}
        argv = (self._programs.tyk, "--conf", str(files / "tyk.conf"))
        ready = partial(probes.http, self._stack.front_url, "/hello")
        await self._stack.start(Spec("tyk", argv, env, ready, stop_s=5.0))

    def _write_definitions(self, source: Path, target: Path) -> None:
        """The API definitions on our ports, with the secret that the plugin asks for, readable by us only."""
        target.mkdir(mode=0o700, exist_ok=True)
        secret = self._stack.data.secret("plugin").read_text().strip()
        for path in source.glob("*.json"):
            definition = tykapps.with_secret(json.loads(path.read_bytes()), secret)
            definition["listen_port"] = self._stack.front_port
            scheme, _, host = definition["proxy"]["target_url"].partition("://")
            if host.startswith(_PLUGIN):
                definition["proxy"]["target_url"] = f"{scheme}://{HOST}:{self._targets[scheme]}"
            write_private(target / path.name, json.dumps(definition, indent=2))


def _version(tyk: str) -> str:
    """What Tyk calls itself."""
    try:
        asked = subprocess.run([tyk, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Misconfigured(f"{tyk} does not run: {error}.") from error
    return (asked.stdout or asked.stderr).strip().splitlines()[0] if asked.stdout or asked.stderr else ""
