"""The doctor on real servers: compose's own files come out clean, and a server that is not as it should be does not."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from signalbox.bus import queues, table, topology
from signalbox.bus.client import Bus
from signalbox.ops.doctor import natsrules, queuerules
from signalbox.ops.ports import free_port
from signalbox.program.settings import Wire
from signalbox.wire import names, queuenames
from signalbox.wire.assets import MIB
from signalbox.wire.queues import Queue, QueueSide, rear_config
from signalbox.wire.roles import USERS
from tests.integration.gateway_plugin.test_edge_nats_cluster import Cluster, cluster, tries
from tests.integration.repository.test_compose_file import OURS, different, local, secrets
from tests.rigs.natsserver import NatsServer
from tests.rigs.objectstore import ObjectStoreServer

__all__ = ["cluster", "secrets"]
ROOT = Path(__file__).resolve().parents[3]
ACCEPTED = str(ROOT / "deploy" / "doctor.toml")
LONG = "long enough for any password"
PASSWORDS: dict[str, str] = {role: f"{LONG} of {role}" for role in USERS}
LET_BE = {"host.root", "host.core_dumps", "host.gpu_shared", "worker.runner_is_root"}
"""What depends on the machine the tests run on."""


def doctor(*arguments: str, **env: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and findings of ``signalbox doctor --json``."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    reported = subprocess.run(
        [sys.executable, "-m", "signalbox", "doctor", "--json", *arguments],
        env=clean | {"PYTHONPATH": str(ROOT)} | env,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert reported.returncode in {0, 1}, reported.stderr
    return reported.returncode, json.loads(reported.stdout)["findings"]


def weak(found: list[dict[str, Any]]) -> set[str]:
    """Ids of what is to be mended, the machine's own aside."""
    return {one["id"] for one in found if not one["accepted"] and one["severity"] != "low"} - LET_BE


@pytest.mark.parametrize("name", different())
def test_each_program_of_compose_has_nothing_to_mend(name: str, secrets: Path) -> None:
    environment = {key: local(str(value), secrets) for key, value in OURS[name]["environment"].items()}
    # Its folder is a volume in the container; here the secrets' parent stands in, below /tmp.
    environment.pop("SIGNALBOX_WORKER_LOCK_DIR", None)
    _, found = doctor("--offline", "--production", "--accept", ACCEPTED, **environment)
    assert weak(found) - {"worker.lock_in_tmp"} == set()


def test_the_files_of_compose_have_nothing_to_mend(secrets: Path, tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    for name in ("nats", "doctor.toml"):
        (tmp_path / "deploy" / name).symlink_to(ROOT / "deploy" / name)
    (tmp_path / "deploy" / "secrets").symlink_to(secrets)
    (tmp_path / "tyk").symlink_to(ROOT / "tyk")
    (_, found), (_, unread) = (
        doctor("--offline", "--production", "--files", str(tmp_path)),
        doctor("--offline", "--files", str(tmp_path / "deploy")),
    )
    mine = {"nats.anonymous"}  # this command has no settings of its own
    assert weak(found) - mine == set()
    assert "tyk.plugin_plain" in {one["id"] for one in found if one["accepted"]}
    assert weak(unread) - mine == set()


async def test_the_three_nodes_of_compose_have_nothing_to_mend(cluster: Cluster) -> None:
    applied = await asyncio.to_thread(tries, cluster, "apply", "--replicas", "3")
    assert applied.returncode == 0, applied.stderr

    def as_user(user: str) -> tuple[int, list[dict[str, Any]]]:
        return doctor(
            "--production",
            "--accept",
            ACCEPTED,
            "--program",
            user.split("-", maxsplit=1)[0],
            SIGNALBOX_NATS_URL=cluster.url,
            SIGNALBOX_NATS_USER=user,
            SIGNALBOX_NATS_PASSWORD_FILE=str(cluster.secrets / f"nats_{user}"),
            SIGNALBOX_NATS_CA_FILE=str(cluster.secrets / "tls_ca"),
        )

    # Compose pins a server that syncs every copy (ADR 0144); the one the tests run may be newer.
    bus = await Bus.connect(cluster.wire("admin"), role="admin")
    lazy = {"nats.lazy_copies"} if topology.version(bus) >= (2, 15) else set()
    await bus.close()
    for user in ("admin", "worker-1"):
        _, found = await asyncio.to_thread(as_user, user)
        assert {one for one in weak(found) if one.startswith("nats.")} <= lazy, found
        assert lazy <= weak(found) or user != "admin"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of 20 days for this machine, signed by itself, and its key."""
    short, key = tmp_path / "short.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "20",
            "-keyout",
            str(key),
            "-out",
            str(short),
            "-subj",
            "/CN=n",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return short, key


async def test_a_node_s_certificate_that_ends_soon_or_is_not_believed_is_found(
    tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    short, key = pair
    tls = f'cert_file: "{short}", key_file: "{key}"'
    async with NatsServer(tmp_path / "nats", tls=tls) as server:
        for ca_file, wanted in ((str(short), "certificate.ends_soon"), ("", "certificate.refused")):
            _, found = await asyncio.to_thread(doctor, SIGNALBOX_NATS_URL=server.url, SIGNALBOX_NATS_CA_FILE=ca_file)
            assert {one["id"]: one["where"] for one in found}[wanted].startswith("127.0.0.1:")


async def test_a_server_that_is_not_as_declared_is_found(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "open") as server:
        bus = await Bus.connect(Wire(nats_url=server.url), role="admin")
        await topology.apply(bus)
        await bus.request_json("$JS.API.STREAM.DELETE.DLQ")
        await bus.close()
        status, found = await asyncio.to_thread(doctor, "--production", SIGNALBOX_NATS_URL=server.url)
        assert status == 1
        assert weak(found) == {"nats.anonymous", "nats.no_users", "nats.streams_differ", "nats.single_copy"}
        assert "DLQ" in next(one["what"] for one in found if one["id"] == "nats.streams_differ")


async def test_a_server_that_runs_out_of_room_is_found(tmp_path: Path) -> None:
    monitor = f"127.0.0.1:{free_port()}"
    async with NatsServer(tmp_path / "small", monitor=monitor) as server:
        bus = await Bus.connect(Wire(nats_url=server.url), role="admin")
        await topology.apply(bus, storage_bytes=20 * MIB)

        async def crowded() -> dict[str, str]:
            _, found = await asyncio.to_thread(doctor, "--monitor", f"http://{monitor}", SIGNALBOX_NATS_URL=server.url)
            streams = [one for one in found if "streams may take" in one["what"] or "holds" in one["what"]]
            return {one["id"]: one["what"] for one in streams}

        assert await crowded() == {}
        for part in range(2):  # of 1.6 MiB
            await bus.write(names.dead_letter("m", str(part)), bytes(700_000))
        assert await crowded() == {"nats.nearly_full": "DLQ holds 83% of its max_bytes"}
        await topology.apply(bus, storage_bytes=60 * 1024 * MIB)
        assert list(await crowded()) == ["nats.overcommitted"]
        await bus.close()


async def test_a_user_with_more_rights_than_its_role_is_found(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "users", users=PASSWORDS) as server:
        login = {"SIGNALBOX_NATS_URL": server.url}
        admin = {"SIGNALBOX_NATS_USER": "admin", "SIGNALBOX_NATS_PASSWORD": PASSWORDS["admin"]}
        wire = Wire(nats_url=server.url, nats_user="admin", nats_password=PASSWORDS["admin"])
        bus = await Bus.connect(wire, role="admin")
        await topology.apply(bus)
        await bus.close()
        _, found = await asyncio.to_thread(doctor, "--program", "worker", **login, **admin)
        assert {"nats.admin", "nats.other_rights"} <= weak(found)
        own = {"SIGNALBOX_NATS_USER": "worker", "SIGNALBOX_NATS_PASSWORD": PASSWORDS["worker"]}
        _, found = await asyncio.to_thread(doctor, **login, **own)
        assert weak(found) == {"nats.single_copy", "worker.lock_in_tmp", "worker.reads_everything"}


async def test_a_queue_without_its_streams_is_found_and_an_account_that_is_nearly_full(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "users", users=PASSWORDS, queues_bytes=MIB) as server:
        admin, queues_admin = PASSWORDS["admin"], PASSWORDS["admin-queues"]
        wire = Wire(
            nats_url=server.url,
            nats_user="admin",
            nats_password=admin,
            queues_nats_user="admin-queues",
            queues_nats_password=queues_admin,
        )
        async with await Bus.connect(wire, role="admin") as bus, await queues.connect(wire, role="admin") as queue_bus:
            await topology.apply(bus)
            queue = Queue(name="texts", account_id="acme")
            await table.put(bus, names.Bucket.QUEUES, "texts", queue)
            login = {"SIGNALBOX_NATS_URL": server.url, "SIGNALBOX_NATS_USER": "admin"}
            login["SIGNALBOX_QUEUES_NATS_USER"] = "admin-queues"
            secrets = {"SIGNALBOX_NATS_PASSWORD": admin, "SIGNALBOX_QUEUES_NATS_PASSWORD": queues_admin}
            _, told = await asyncio.to_thread(doctor, **login, **secrets)
            missing = [one["what"] for one in told if one["id"] == "queues.streams_differ"]
            assert missing == ["queue texts has no source", "queue texts has no sink"]

            async def found() -> list[tuple[str, str]]:
                return [(one.id, one.what) for one in await queuerules.examine(bus, queue_bus, role="admin")]

            await queues.declare(queue_bus, queue)
            await queue_bus.request_json(f"$JS.API.STREAM.CREATE.{queuenames.REAR}", rear_config(1, 100_000))
            assert await found() == []
            await table.put(bus, names.Bucket.QUEUES, "texts", replace(queue, sink=QueueSide(max_length=5)))
            differing = [what for _, what in await found()]
            assert [what.partition(" is ")[0] for what in differing] == [
                "Q_texts_sink: max_msg_size",
                "Q_texts_sink: max_msgs",
            ]
            await table.put(bus, names.Bucket.QUEUES, "texts", queue)
            await queue_bus.write(queuenames.rear_item("texts", "source"), bytes(90_000))
            assert await found() == [("queues.nearly_full", "REAR holds 90% of its max_bytes")]
            for number in range(100):
                await queue_bus.write(queuenames.queue_item("texts", "source", "lo", str(number)), bytes(8192))
            assert ("queues.nearly_full", "queues hold 87% of the account's max_file") in await found()


async def test_a_user_of_queues_with_more_rights_than_its_role_is_found(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "users", users=PASSWORDS) as server:
        wire = Wire(nats_url=server.url, nats_user="admin", nats_password=PASSWORDS["admin"])
        async with await Bus.connect(wire, role="admin") as bus:
            await topology.apply(bus)
        for user, extra in (("gateway-queues", []), ("outbound-queues", ["queues"]), ("admin-queues", ["queues"])):
            wire = Wire(nats_url=server.url, queues_nats_user=user, queues_nats_password=PASSWORDS[user])
            async with await queues.connect(wire, role="gateway") as queue_bus:
                found = await natsrules.examine_rights(queue_bus, "queues", "gateway-queues")
                assert [one.where for one in found] == extra


def test_a_server_that_is_away_is_said_to_be_away() -> None:
    status, found = doctor("--production", SIGNALBOX_NATS_URL="nats://127.0.0.1:1")
    assert status == 1
    assert "nats.away" in weak(found)


def test_a_bucket_for_uploads_that_cannot_be_written_is_found(object_store: ObjectStoreServer, tmp_path: Path) -> None:
    bucket = object_store.bucket()
    object_store.put(bucket, {"here": b""})
    place = f"s3://{bucket}/uploads"
    places = {
        "SIGNALBOX_CONSOLE_UPLOADS_URL": place,
        "SIGNALBOX_CONSOLE_REPOSITORY_CREDENTIALS": str(tmp_path),
    }
    away = {"SIGNALBOX_NATS_URL": f"nats://127.0.0.1:{free_port()}"}
    object_store.credentials(tmp_path, "uploads")
    _, found = doctor(**places, **away)
    assert "uploads.unwritable" not in weak(found)
    object_store.credentials(tmp_path, "uploads", secret_access_key="wrong")
    _, found = doctor(**places, **away)
    (said,) = [one["what"] for one in found if one["id"] == "uploads.unwritable"]
    assert said.startswith(f"{place}: The store of repository uploads refuses its credentials")


def test_an_acceptance_nobody_can_need_is_refused(tmp_path: Path) -> None:
    for text in ('[accept]\n"made.up" = "x"\n', '[accept]\n"nats.plain" = ""\n', "not toml at all"):
        path = tmp_path / "doctor.toml"
        path.write_text(text)
        reported = subprocess.run(
            [sys.executable, "-m", "signalbox", "doctor", "--offline", "--accept", str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=ROOT,
        )
        assert reported.returncode == 2
        assert str(path) in reported.stderr
        assert "Traceback" not in reported.stderr


async def test_a_block_that_nats_cannot_read_is_found(own_nats: NatsServer) -> None:
    wire = Wire(nats_url=own_nats.url)
    bus = await Bus.connect(wire, role="admin", name="test")
    for number in range(20):
        await bus.write(f"jobs.m.hi.t.s.{number}", b"an accepted job", expect=0)
        await bus.write(f"$KV.workers.w{number}", b"an accepted job", expect=0, ttl_s=60)
    await bus.close()
    await own_nats.kill()
    for stream in ("JOBS", "KV_workers"):  # presence is written again within seconds
        (block,) = (own_nats.folder / "store").rglob(f"streams/{stream}/msgs/*.blk")
        data = bytearray(block.read_bytes())
        data[data.index(b"an accepted job", len(data) // 2)] ^= 0xFF
        block.write_bytes(data)
    await own_nats.start()
    _, found = doctor(SIGNALBOX_NATS_URL=own_nats.url)
    (damaged,) = [one for one in found if one["id"] == "nats.damaged"]
    assert damaged["what"].startswith("JOBS: ")
