"""Hosts with keys: added and revoked while the server and everybody else's connections stay up."""

import asyncio
import base64
import json
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.transport.connection import Connection
from signalbox.bus.transport.interface import Events
from signalbox.ops import cli, natsserver
from signalbox.ops.doctor import natsrules
from signalbox.ops.host.settings import PREFIX, HostSettings
from signalbox.ops.nats.keys import Keys
from signalbox.program.errors import Misconfigured, NotFound, SignalboxError, Unavailable
from signalbox.program.settings import Wire, load
from signalbox.wire.names import Bucket, host_worker
from signalbox.wire.roles import OWN_RIGHTS, USERS, host_permissions
from tests.rigs import lightworker
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess

PASSWORDS: dict[str, str] = {role: f"secret of {role}" for role in USERS}
WAIT_S = 60


class Watched:
    """A connection of its own, and what became of it."""

    def __init__(self, wire: Wire) -> None:
        self.lost, self.restored = asyncio.Event(), asyncio.Event()
        self.faults: list[str] = []
        self.refused = asyncio.Event()
        self._wire = wire
        self.connection = Connection(
            Events(lambda _: None, self.faults.append, self._error, self._on(self.lost), self._on(self.restored))
        )

    async def _error(self, error: Exception) -> None:
        self.faults.append(str(error))
        if "authorization" in str(error).lower():
            self.refused.set()

    @staticmethod
    def _on(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
        async def happened() -> None:
            event.set()

        return happened

    async def alive(self) -> bool:
        """Whether the server answers on the connection that was opened first."""
        await self.connection.round_trip(WAIT_S)
        return not self.lost.is_set()


@asynccontextmanager
async def watched(server: NatsServer, user: str, **login: str) -> AsyncIterator[Watched]:
    wire = Wire(nats_url=server.url, nats_user=user, reconnect_wait_s=0.05, **login)  # type: ignore[arg-type]
    found = Watched(wire)
    try:
        async with asyncio.timeout(WAIT_S):
            opening = asyncio.create_task(found.connection.open(wire, "worker", ""))
            refused = asyncio.create_task(found.refused.wait())
            await asyncio.wait([opening, refused], return_when=asyncio.FIRST_COMPLETED)
            refused.cancel()
            if not opening.done():
                opening.cancel()
        yield found
    finally:
        await found.connection.close()


def users_of(keys: Keys) -> dict[str, str]:
    return {key.name: key.public for key in keys.all()}


async def test_keys_come_and_go_while_every_other_connection_stays(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.top_up(2)
    async with NatsServer(tmp_path / "nats", users=PASSWORDS, hosts=users_of(keys)) as server:
        pid = server.pid
        (first, first_seed), (second, second_seed) = keys.take(), keys.take()
        with_password = watched(server, "gateway", nats_password=PASSWORDS["gateway"])
        async with (
            with_password as gateway,
            watched(server, first.name, nats_seed=first_seed) as kept,
            watched(server, second.name, nats_seed=second_seed) as revoked,
        ):
            assert [await one.alive() for one in (gateway, kept, revoked)] == [True] * 3
            (name,) = keys.top_up(1)
            third, third_seed = keys.take()
            assert third.name == name
            async with watched(server, third.name, nats_seed=third_seed) as too_early:
                assert too_early.refused.is_set()
            server.hosts = users_of(keys)
            await server.reload()
            async with watched(server, third.name, nats_seed=third_seed) as added:
                assert [await one.alive() for one in (gateway, kept, revoked, added)] == [True] * 4
                keys.revoke([second.name])
                server.hosts = users_of(keys)
                await server.reload()
                async with asyncio.timeout(WAIT_S):
                    await revoked.lost.wait()
                    await revoked.refused.wait()  # and so is each attempt to come back
                assert [await one.alive() for one in (gateway, kept, added)] == [True] * 3
                assert not revoked.restored.is_set()
        assert server.pid == pid


async def test_a_host_has_the_rights_of_its_key_and_no_other_s(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.top_up(2)
    mine, other = keys.all()
    async with NatsServer(tmp_path / "nats", users=PASSWORDS, hosts=users_of(keys)) as server:
        await (await lay(server)).close()
        key, seed = keys.take()
        assert key.name == mine.name
        wire = Wire(nats_url=server.url, nats_user=mine.name, nats_seed=seed, request_timeout_s=5.0)
        async with await Bus.connect(wire, role="worker", name="one") as bus:
            await topology.require(bus)
            reported = (await bus.request_json(OWN_RIGHTS))["data"]["permissions"]
            declared = host_permissions(mine.name)
            assert set(reported["publish"]["allow"]) == set(declared.publish)
            assert set(reported["subscribe"]["allow"]) == set(declared.subscribe)
            assert await natsrules.examine_rights(bus, "nats", "worker") == []
            for number in (1, 16):
                await bus.write(f"$KV.{Bucket.WORKERS}.{host_worker(mine.name, number)}", b"{}")
            for name in (host_worker(other.name, 1), host_worker(mine.name, 17), "worker-1", mine.name):
                with pytest.raises(SignalboxError):
                    await bus.write(f"$KV.{Bucket.WORKERS}.{name}", b"{}")


async def test_workers_of_a_host_run_jobs_with_its_key_alone(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.top_up(1)
    async with NatsServer(tmp_path / "nats", users=PASSWORDS, hosts=users_of(keys)) as server:
        key, seed = keys.take()
        admin = await lay(server)
        ledger = await Ledger(admin).start()
        await register(admin, "half", lightworker.version("half"))
        login = {"nats_user": key.name, "nats_seed": seed}

        def worker(number: int) -> WorkerProcess:
            name = host_worker(key.name, number)
            return WorkerProcess(server.url, tmp_path, name, program=lightworker.PROGRAM, **login)

        async with worker(1) as first, worker(2) as second:
            await asyncio.gather(first.said("runner.ready"), second.said("runner.ready"))
            (record,) = await ledger.ended(await ledger.submit("half", floats(1.0)))
            holder, other = (first, second) if record.worker == first.id else (second, first)
            await holder.kill()
            (record,) = await ledger.ended(await ledger.submit("half", floats(1.0)), timeout_s=25)
            assert record.worker == other.id
            denied = [line for one in (first, second) for line in one.lines if "permission" in str(line.get("event"))]
            assert denied == []
        await admin.close()


async def lay(server: NatsServer) -> Bus:
    """Streams and buckets, as the admin, whose connection this is."""
    wire = Wire(nats_url=server.url, nats_user="admin", nats_password=PASSWORDS["admin"])
    bus = await Bus.connect(wire, role="admin")
    await topology.apply(bus)
    return bus


async def test_a_server_without_keys_is_said_to_have_none(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.top_up(1)
    key, seed = keys.take()
    async with NatsServer(tmp_path / "nats", users=PASSWORDS) as server:
        wire = Wire(nats_url=server.url, nats_user=key.name, nats_seed=seed, connect_timeout_s=2.0)
        with pytest.raises(Unavailable, match="the server has no user with a key"):
            await Bus.connect(wire, role="worker")


async def test_the_command_fills_a_pool_and_writes_what_a_server_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = tmp_path / "keys", tmp_path / "users.conf"
    command = ["nats-users", "--keys", str(folder), "--output", str(output)]
    assert cli.main([*command, "--pool", "3"]) == 0
    assert "3 made, 0 revoked, 3 free of 3" in capsys.readouterr().err
    keys = Keys(folder)
    assert output.read_text().count("nkey: U") == 3
    for path in (folder, *folder.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    taken, _ = keys.take()
    assert cli.main([*command, "--pool", "3", "--revoke", keys.all()[-1].name]) == 0
    assert "2 made, 1 revoked, 3 free of 4" in capsys.readouterr().err
    assert taken.public in output.read_text()
    config = tmp_path / "nats.conf"
    config.write_text('port: -1\ninclude "users.conf"\n')
    passwords = {natsserver.password_variable(role): "p" for role in USERS}
    process = await asyncio.create_subprocess_exec(natsserver.binary(), "-t", "-c", str(config), env=passwords)
    assert await process.wait() == 0
    before = output.read_text()
    assert cli.main([*command, "--revoke", "host-aaaaaaaa"]) == 2
    assert output.read_text() == before


def test_pods_get_a_key_each_and_the_same_ones_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "keys"
    command = ["nats-users", "--keys", str(folder)]
    assert cli.main([*command, "--pool", "3"]) == 0
    users = capsys.readouterr().out

    def printed(*pods: str) -> dict[str, str]:
        words = [word for pod in pods for word in ("--pod", pod)]
        assert cli.main([*command, "--secret", "seeds", *words]) == 0
        manifest = json.loads(capsys.readouterr().out)
        assert (manifest["kind"], manifest["metadata"]) == ("Secret", {"name": "seeds"})
        return {name: base64.b64decode(text).decode() for name, text in manifest["data"].items()}

    first = printed("worker-cpu:2")
    assert set(first) == {"worker-cpu-0.seed", "worker-cpu-1.seed"}
    more = printed("worker-cpu:2", "worker-a100-0")
    assert {name: more[name] for name in first} == first
    names = set()
    for seed in more.values():  # what a pod is given is all that it needs
        (tmp_path / "seed").write_text(seed)
        settings = load(HostSettings, PREFIX, {"SIGNALBOX_NATS_SEED_FILE": str(tmp_path / "seed")})
        assert settings.host_id == settings.nats_user
        names.add(settings.nats_user)
    assert names == {key.name for key in Keys(folder).all()}
    assert cli.main(command) == 0
    assert capsys.readouterr().out == users, "the servers need no other configuration"
    for words, why in (
        (["--secret", "seeds", "--pod", "worker-cpu:3"], "0 free keys for 1 pods"),
        (["--secret", "Seeds", "--pod", "worker-cpu:2"], "no name of a Secret"),
        (["--secret", "seeds", "--pod", "worker-cpu:2", "--output", "users.conf"], "a Secret alone"),
        (["--secret", "seeds", "--pod", "Worker_1"], "neither a pod"),
        (["--pod", "worker-cpu-0"], "--secret NAME"),
        (["--namespace", "signalbox"], "--secret NAME"),
        (["--secret", "seeds", "--pod", "worker-cpu:2", "--namespace", ""], "no name of a namespace"),
        (["--secret", "seeds", "--pod", "worker-cpu:2", "--namespace", "a/b"], "no name of a namespace"),
    ):
        assert cli.main([*command, *words]) == 2
        assert why in capsys.readouterr().err
    assert cli.main([*command, "--pool", "1"]) == 0
    assert cli.main([*command, "--secret", "others", "--pod", "worker-cpu:2"]) == 2
    assert [key.host for key in Keys(folder).all() if key.is_free] == [""], "too few keys, and none is taken"
    next(folder.glob("*.given")).unlink()
    assert cli.main([*command, "--secret", "seeds", "--pod", "worker-cpu:2", "--pod", "worker-a100-0"]) == 2
    assert "revoke it first" in capsys.readouterr().err


def test_pods_of_one_name_in_two_namespaces_have_keys_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "keys"
    Keys(folder).top_up(3)

    def printed(*options: str) -> tuple[dict[str, str], str]:
        command = ["nats-users", "--keys", str(folder), "--secret", "seeds", "--pod", "worker-cpu-0"]
        assert cli.main([*command, *options]) == 0
        manifest = json.loads(capsys.readouterr().out)
        return manifest["metadata"], manifest["data"]["worker-cpu-0.seed"]

    unbound, first, second = printed(), printed("--namespace", "first"), printed("--namespace", "second")
    assert [metadata for metadata, _ in (unbound, first, second)] == [
        {"name": "seeds"},
        {"name": "seeds", "namespace": "first"},
        {"name": "seeds", "namespace": "second"},
    ]
    assert len({seed for _, seed in (unbound, first, second)}) == 3
    assert [printed(), printed("--namespace", "first"), printed("--namespace", "second")] == [unbound, first, second]


def test_a_taken_key_is_given_once_and_noted_with_its_host(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.top_up(1)
    key, _ = keys.take()
    with pytest.raises(NotFound, match="no free key"):
        keys.take()
    keys.put_back(key.name)
    assert keys.take()[0] == key
    keys.keep(key.name, "root@gpu-1")
    (kept,) = keys.all()
    assert kept == (key.name, key.public, "root@gpu-1", False)
    assert [path.name for path in (tmp_path / "keys").iterdir()] == [f"{key.name}.pub"]
    (tmp_path / "keys" / "host-bbbbbbbb.pub").write_text(f"{key.public}\n")
    with pytest.raises(Misconfigured, match="no public key of a host"):
        keys.all()
