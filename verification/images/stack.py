"""The stack of ``signalbox up``, each of our programs started from its image's root as an engine would start it."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from signalbox.client import AsyncClient
from signalbox.ops import probes
from signalbox.ops.up.child import Child, Spec, at_once
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import SignalboxError, Unavailable
from verification.images.build import Config

INSIDE: Final = "/var/lib/signalbox"
"""The stack's folder of data in each root: volumes are mounted there."""
_IMAGES: Final = {"gateway_plugin": "gateway", "signalbox": "gateway", "workers": "worker", "console": "console"}
"""Which image has which package as its program."""
_MODEL: Final = "half_plus_two"
_EXPORT: Final = f"""
from pathlib import Path
from workers import demo_models
demo_models.{_MODEL}(Path("{INSIDE}/models/{_MODEL}/1"))
"""
_ANSWER_S: Final = 180.0
_RETRY_S: Final = 0.25
_ENTER: Final = """set -e
root=$1 data=$2 inside=$3 user=$4 group=$5 workdir=$6
shift 6
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t tmpfs -o mode=1777,size=256m,nosuid,nodev tmpfs "$root/tmp"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/dev/shm"
mount --bind "$data" "$root$inside"
exec chroot "$root" setpriv --reuid="$user" --regid="$group" --clear-groups --bounding-set=-all --inh-caps=-all \\
  --no-new-privs --pdeathsig=KILL -- env --chdir="$workdir" "$@"
"""
"""Into a root that nothing is written to, with a /tmp of one's own. Each step becomes the next: one process."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image that programs are started from. root: its files on this machine."""

    root: Path
    config: Config

    @property
    def user(self) -> int:
        """The user's number."""
        return int(self.config.user.partition(":")[0])

    def enter(self, data: Path, *argv: str) -> tuple[str, ...]:
        """Command that starts a program in it. data: this machine's folder at :data:`INSIDE`."""
        user, _, group = self.config.user.partition(":")
        space = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh")
        return (*space, str(self.root), str(data), INSIDE, user, group, self.config.workdir, *argv)


class ImageStack(UpStack):
    """Runs from ``images``, by target, all but NATS."""

    def __init__(self, data: DataDir, say: Callable[[str], None], images: Mapping[str, Image]) -> None:
        options = UpOptions(
            data=data.path, workers=1, front="edge", front_port=0, grpc_port=0, console_port=0, nats_port=0
        )
        super().__init__(options, data, say)
        self._images = images

    def spec(
        self,
        name: str,
        module: str,
        *arguments: str,
        env: Mapping[str, str],
        ready: Callable[[], Awaitable[bool]] = at_once,
        ready_s: float = 60.0,
    ) -> Spec:
        """A program of ours, in the root of its image."""
        return self._inside(name, module, "-m", module, *arguments, env=env)._replace(ready=ready, ready_s=ready_s)

    def _inside(self, name: str, module: str, *arguments: str, env: Mapping[str, str]) -> Spec:
        image = self._images[_IMAGES[module.partition(".")[0]]]
        self._give(image.user)
        pairs = (pair.partition("=")[::2] for pair in image.config.environment)
        ours = {key: value for key, value in env.items() if key.startswith("SIGNALBOX_")}
        given = {key: value.replace(str(self.data.path), INSIDE) for key, value in ours.items()}
        words = (word.replace(str(self.data.path), INSIDE) for word in arguments)
        return Spec(name, image.enter(self.data.path, "python", *words), dict(pairs) | given)

    def _give(self, user: int) -> None:
        """What the programs keep and read is theirs."""
        os.chown(self.data.path, user, user)
        for name in ("secrets", "console", "models", "cache", "locks"):
            folder = self.data.path / name
            folder.mkdir(exist_ok=True)
            for path in (folder, *folder.rglob("*")):
                with contextlib.suppress(FileNotFoundError):
                    os.chown(path, user, user, follow_symlinks=False)

    async def check_configurations(self) -> None:
        """Each program says its settings. Raises :class:`Unavailable` with what one says instead."""
        roles = {"gateway_plugin": "gateway", "gateway_plugin.outbound": "outbound", "workers": "worker"}
        for module, role in {**roles, "console": "console"}.items():
            name = f"{role}-config"
            more = {"SIGNALBOX_GATEWAY_LISTEN": "unix:///tmp/plugin.sock"} if role == "gateway" else {}
            await self.run_to_end(name, module, "--check-config", env=self.env(role) | more)
        self.say("each program takes its settings (--check-config)")

    async def start_all(self) -> None:
        """Everything that a job passes, and the console's programs; ready when this returns."""
        await self.start_nats()
        for path in ("models", "console/models"):
            (self.data.path / path).mkdir(parents=True, exist_ok=True)
        export = self._inside("export", "workers", "-c", _EXPORT, env=self.env("worker"))
        await self._run(export._replace(ready_s=_ANSWER_S))
        self.say(f"the worker's image has exported {_MODEL}")
        await self.start_console()
        if not await probes.http(self.console_url, "/healthz"):
            raise Unavailable("The console answers, but not /healthz.")
        self.say("the console, its controller and its projector run; /healthz answers")
        await self.start_edge()
        await self.start_outbound()
        await self.start_worker(1)
        self.say("gateway, outbound and worker run")

    async def _run(self, spec: Spec) -> None:
        await Child(spec, self.data.path / "logs", self.say).run_to_end()

    async def predict(self) -> dict[str, Any]:
        """One answer through the gateway's edge. Raises :class:`Unavailable` with the last refusal."""
        async with ConsoleClient(self.console_url, await self.operator_token()) as console:
            await console.register(_MODEL, Path(INSIDE, "models", _MODEL), "y = x / 2 + 2")
            key = await console.create_key("images")
        fault: SignalboxError = Unavailable("The front did not answer.")
        async with AsyncClient(self.front_url, key, retries=0) as client:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    while True:
                        try:
                            return await client.predict(_MODEL, instances=[1.0, 2.0, 5.0])
                        except SignalboxError as error:
                            fault = error
                        await asyncio.sleep(_RETRY_S)
        raise Unavailable(f"No prediction within {_ANSWER_S:g} s: {fault.public_message}") from fault

    def confined(self) -> list[str]:
        """Names of running programs that are not root, have no capability, and whose root nothing is written to.

        Raises :class:`Unavailable` for one that is otherwise.
        """
        names = []
        for child in self.children:
            if child.spec.name == "nats":
                continue
            told = Path("/proc", str(child.pid))
            status = dict(line.split(":\t", 1) for line in (told / "status").read_text().splitlines() if ":\t" in line)
            mounts = [line.split() for line in (told / "mountinfo").read_text().splitlines()]
            (options,) = {mount[5] for mount in mounts if mount[4] == "/"}
            held = (status["Uid"].split()[1] != "0", int(status["CapEff"], 16) == 0, status["NoNewPrivs"] == "1")
            if not all(held) or "ro" not in options.split(","):
                raise Unavailable(f"{child.spec.name} runs with too much: {held}, root mounted {options}.")
            names.append(child.spec.name)
        return names
