"""Bridges and network namespaces: made when a run starts, and gone after it, however it ended."""

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import Final, Self

from signalbox.program.errors import Unavailable
from signalbox.program.heldfile import HeldFile
from verification.production.compose import Compose
from verification.production.inside import kill_all
from verification.production.links import Link, hosts, plan

RUNS: Final = Path("/run/signalbox-production")
"""A file a run, named by its process id and locked for as long as it lives."""
NAMESPACES: Final = Path("/run/netns")
_BLOCK: Final = "10.213"
"""Networks are 10.213.N.0/24, N the first that no route of this machine knows."""
_IP_S: Final = 60.0


class Network:
    """The networks of one run. ip: the program. Everything is named by this process' id."""

    def __init__(self, compose: Compose, ip: str) -> None:
        self._compose = compose
        self._ip = ip
        self._stem = f"sb{os.getpid()}"
        self._lock = HeldFile(RUNS / str(os.getpid()))
        self.bridges = {name: f"{self._stem}b{n}" for n, name in enumerate(compose.networks)}
        self.links: dict[str, list[Link]] = {}
        """By service, in the order of its networks."""

    def __enter__(self) -> Self:
        """Remove what runs that were killed have left, and make ours. Raises :class:`Unavailable`."""
        RUNS.mkdir(exist_ok=True)
        with HeldFile(RUNS / "all"):  # one run at a time chooses networks
            self._forget_the_dead()
            self._lock.take()  # no other process has our id
            try:
                self._make()
            except BaseException:
                self._remove(self._stem)
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove(self._stem)
        (RUNS / str(os.getpid())).unlink(missing_ok=True)
        self._lock.close()

    def namespace(self, service: str) -> str:
        """Its name, for ``ip netns exec``."""
        return f"{self._stem}-{service}"

    def address(self, service: str) -> str:
        """Where the host reaches a service: its address on its first network."""
        return self.links[service][0].address

    def hosts(self, service: str) -> str:
        """The text of a service's ``/etc/hosts``."""
        return hosts(self._compose, self.links, service)

    def end_all(self, service: str) -> None:
        """Kill what is left in a service's container once its program has ended, as an engine does."""
        kill_all(NAMESPACES / self.namespace(service))

    def _make(self) -> None:
        taken = self._taken()
        free = iter(n for n in range(256) if n not in taken)
        subnets = {name: f"{_BLOCK}.{next(free)}" for name in self.bridges}
        commands = []
        for name, bridge in self.bridges.items():
            commands += [
                f"link add {bridge} type bridge forward_delay 0",
                f"address add {subnets[name]}.1/24 dev {bridge}",
                f"link set {bridge} up",
            ]
        commands += [f"netns add {self.namespace(name)}" for name in self._compose.services]
        self._run(commands)
        self.links = plan(self._compose, subnets, self._stem)
        for name, links in self.links.items():
            self._attach(self.namespace(name), links)
            for setting, value in self._compose.services[name].sysctls.items():
                self._set(self.namespace(name), setting, value)

    def _attach(self, namespace: str, links: list[Link]) -> None:
        outside, inside = [], ["link set lo up"]
        for link in links:
            outside += [
                f"link add {link.host} type veth peer name {link.inside} netns {namespace}",
                f"link set {link.host} master {self.bridges[link.network]} up",
            ]
            inside += [f"address add {link.address}/24 dev {link.inside}", f"link set {link.inside} up"]
        self._run(outside)
        self._run(inside, "-n", namespace)

    def _set(self, namespace: str, setting: str, value: int) -> None:
        """A setting of the kernel for this namespace alone. Raises :class:`Unavailable` where it has none."""
        path = Path("/proc/sys", *setting.split("."))
        argv = (self._ip, "netns", "exec", namespace, "/bin/sh", "-c", 'echo "$0" >"$1"')
        done = subprocess.run(
            [*argv, str(value), str(path)], capture_output=True, text=True, timeout=_IP_S, check=False
        )
        if done.returncode:
            raise Unavailable(f"{setting} cannot be set: {done.stderr.strip()}.")

    def _forget_the_dead(self) -> None:
        for path in RUNS.iterdir():
            if not path.name.isdecimal():
                continue
            with contextlib.closing(HeldFile(path)) as run:
                if run.take():
                    self._remove(f"sb{path.name}")
                    path.unlink()

    def _remove(self, stem: str) -> None:
        """All that carries a run's name: processes, namespaces with their links, bridges."""
        commands = []
        for path in NAMESPACES.glob(f"{stem}-*"):
            kill_all(path)
            commands.append(f"netns delete {path.name}")
        devices = Path("/sys/class/net")
        commands += [f"link delete {path.name}" for path in devices.glob(f"{stem}[bv]*")]
        with contextlib.suppress(Unavailable):  # an end of a link goes with the other
            self._run(commands, "-force")
        if left := [*NAMESPACES.glob(f"{stem}-*"), *devices.glob(f"{stem}[bv]*")]:
            names = ", ".join(path.name for path in left)
            raise Unavailable(f"These are still there, remove them by hand with ip: {names}.")

    def _taken(self) -> set[int]:
        reported = subprocess.run(
            [self._ip, "-json", "route", "show", "table", "all"], capture_output=True, check=True, timeout=_IP_S
        )
        routes = [str(route.get("dst", "")) for route in json.loads(reported.stdout)]
        return {int(dst.split(".")[2]) for dst in routes if dst.startswith(f"{_BLOCK}.")}

    def _run(self, commands: list[str], *options: str) -> None:
        done = subprocess.run(
            [self._ip, *options, "-batch", "-"],
            input="".join(f"{line}\n" for line in commands),
            capture_output=True,
            text=True,
            timeout=_IP_S,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"The networks could not be made or removed: {done.stderr.strip()}.")
