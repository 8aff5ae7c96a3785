"""What noticing asks of a real S3, what it tells nobody, and what it does with models that nobody could serve."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from django.apps import apps
from msgspec.structs import replace

from console.catalog import inspection
from console.catalog.models import ModelVersion
from console.config import ConsoleSettings
from console.noticing.listing import Pace
from signalbox.bus.client import Bus
from signalbox.repositories.entry import PAGE
from signalbox.repositories.version import MOST_FILES
from tests.console.conftest import in_thread
from tests.console.noticing import GRAPH, Rig, files_of, lay, served, write
from tests.rigs.objectstore import ObjectStoreServer
from tests.unit.workers.runner.test_model_gate import model, node

pytestmark = pytest.mark.django_db(transaction=True)
_REQUEST: Final = re.compile(rb"^([A-Z]{3,7}) (\S+) HTTP/1\.1\r\n")
TURN: Final = "turn"


class Wire:
    """The way to a store, on which every request is noted. asked: the turns that were waited for, and the requests:
    ``page``, or the key that was read.
    """

    def __init__(self, store: ObjectStoreServer) -> None:
        self._target = urlsplit(store.endpoint)
        self.asked: list[str] = []
        self.endpoint = ""
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def requests(self) -> list[str]:
        """Without the turns, sorted."""
        return sorted(each for each in self.asked if each != TURN)

    @asynccontextmanager
    async def laid(self) -> AsyncIterator["Wire"]:
        """Meanwhile the store is reached at the endpoint."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
                with suppress(OSError):
                    await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._writers |= {out, writer}
        await asyncio.gather(self._pipe(reader, out, is_noted=True), self._pipe(there, writer, is_noted=False))

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_noted: bool) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                if is_noted and (found := _REQUEST.match(data)):
                    self.asked.append(_named(found[2].decode()))
                sink.write(data)
        sink.close()


def _named(target: str) -> str:
    url = urlsplit(target)
    return "page" if "list-type=2" in url.query else url.path.split("/", 2)[2]


async def put(store: ObjectStoreServer, bucket: str, files: Iterable[tuple[str, bytes]]) -> None:
    """Write them, some at a time."""
    pairs = list(files)
    await asyncio.gather(*(asyncio.to_thread(store.put, bucket, dict(pairs[n::8])) for n in range(8)))


async def test_a_store_is_asked_for_flat_pages_and_new_graphs_alone_each_in_its_turn(
    bus: Bus, console: ConsoleSettings, tmp_path: Path, object_store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, turn, bucket = Wire(object_store), Pace.turn, object_store.bucket()

    async def noted(self: Pace) -> None:
        await turn(self)
        wire.asked.append(TURN)

    monkeypatch.setattr(Pace, "turn", noted)
    models = [f"m{number:02}/1" for number in range(20)]
    await put(object_store, bucket, (pair for folder in models for pair in files_of(folder).items()))
    await put(object_store, bucket, ((f"m00/1/assets.extra/{number:04}", b"") for number in range(PAGE)))
    async with wire.laid():
        credentials = object_store.credentials(tmp_path / "credentials", "zoo", endpoint=wire.endpoint)
        rig = Rig(bus, replace(console, repository_credentials=str(credentials)), f"s3://{bucket}")
        listing = await rig.listed()
        assert (listing.error, listing.models_found, listing.refusals) == ("", len(models), 0)
        assert wire.requests == [*(f"{folder}/{GRAPH}" for folder in models), "page", "page"]
        for end, each in enumerate(wire.asked, 1):
            assert each == TURN or 2 * wire.asked[:end].count(TURN) >= end, "no request before its turn"
        wire.asked.clear()
        await rig.listed()
        assert wire.requests == ["page", "page"]
        wire.asked.clear()
        changed = files_of("m07/1 changed")[f"m07/1 changed/{GRAPH}"]
        await put(object_store, bucket, [(f"m07/1/{GRAPH}", changed)])
        await rig.listed()
        assert wire.requests == [f"m07/1/{GRAPH}", "page", "page"]


async def test_the_same_graph_is_inspected_once_wherever_it_lies_and_many_in_one_process(
    bus: Bus, console: ConsoleSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect, processes = inspection.inspect_graphs, list[int]()

    def counted(folder: Path) -> dict[str, inspection.GraphInspection]:
        processes.append(len(list(folder.iterdir())))
        return inspect(folder)

    monkeypatch.setattr(inspection, "inspect_graphs", counted)
    zoo = tmp_path / "zoo"
    for name in ("a", "b", "c"):
        lay(zoo, Path(name) / "1")
    write(zoo, files_of("other/1"))
    rig = Rig(bus, console, f"file://{zoo}")
    assert (await rig.listed()).models_found == 4
    lay(zoo, Path("later/1"))
    assert (await rig.listed()).refused == {}
    assert await in_thread(served, "later") == [1]
    assert processes == [2], "of two graphs, one of them three models'"


SECRETS: Final = ("AKNOBODYSEES", "nobody-sees-this", "nor%2Fthis", "nor-that")


async def test_credentials_stand_in_no_log_no_message_and_no_row(
    bus: Bus,
    console: ConsoleSettings,
    tmp_path: Path,
    object_store: ObjectStoreServer,
    capfd: pytest.CaptureFixture[str],
) -> None:
    sent: list[bytes] = []
    subscription = await bus.subscribe(">", lambda message: sent.append(message.data))
    bucket = object_store.bucket()
    await put(object_store, bucket, files_of("half/1").items())
    folder = tmp_path / "credentials"
    rig = Rig(bus, replace(console, repository_credentials=str(folder)), f"s3://{bucket}")
    bad: list[dict[str, str | bool]] = [
        {"access_key_id": SECRETS[0], "secret_access_key": SECRETS[1]},
        {"secret_access_key": SECRETS[1], "session_token": SECRETS[2]},
        {"endpoint": f"http://{SECRETS[2]}:{SECRETS[3]}@127.0.0.1:1"},
        {"endpoint": f"ftp://{SECRETS[3]}@127.0.0.1:1"},
        {"sse_customer_key_base64": SECRETS[1], "server_side_encryption": "sse-c"},
        {"region": "x", "proxy_url": f"http://{SECRETS[2]}:{SECRETS[3]}@127.0.0.1:1"},
    ]
    for others in bad:
        object_store.credentials(folder, "zoo", **others)
        assert (await rig.listed()).error, others
    object_store.credentials(folder, "zoo")
    assert (await rig.listed()).error == ""
    assert await in_thread(served) == [1]
    kinds = [kind for kind in apps.get_models() if kind._meta.managed]
    rows = await in_thread(lambda: repr([list(kind._default_manager.values()) for kind in kinds]))
    said = capfd.readouterr()
    assert "repository.failed" in said.err
    assert "zoo" in rows
    assert sent
    for secret in (*SECRETS, "between us"):
        assert secret not in said.out + said.err
        assert secret not in rows
        assert secret.encode() not in b"\n".join(sent)
    await subscription.close()


def fill(folder: Path, count: int) -> None:
    """Make a folder of so many empty files."""
    folder.mkdir()
    for number in range(count):
        os.mknod(folder / str(number))


@pytest.mark.parametrize("count", [MOST_FILES, pytest.param(100_000, marks=pytest.mark.slow)])
async def test_bad_models_are_refused_with_the_reason_and_cost_no_other(
    bus: Bus, console: ConsoleSettings, tmp_path: Path, count: int
) -> None:
    zoo = tmp_path / "zoo"
    lay(zoo, Path("good/1"))
    lay(zoo, Path("..half/1"))
    lay(zoo, Path("many/1"))
    await asyncio.to_thread(fill, zoo / "many/1/more", count)
    for name, graph in {"none": b"no model at all", "odd": model([node("y", "MyFastOp", "x")])}.items():
        (zoo / name / "1").mkdir(parents=True)
        (zoo / name / "1" / GRAPH).write_bytes(graph)
    listing = await Rig(bus, console, f"file://{zoo}").listed()
    assert listing.refused == {
        "..half": "No model can be called '..half': it takes 1 to 100 letters, digits, '_', '.' and '-', a letter or"
        " digit first.",
        "many/1": f"It has {count + len(files_of('many/1'))} files; at most {MOST_FILES} are taken.",
        "none/1": "saved_model.pb is damaged, cut short, or no SavedModel.",
    }
    odd = await in_thread(ModelVersion.objects.get, model__name="odd")
    assert odd.listed_ops == {"MyFastOp": "not on the list of known operations"}
    assert await in_thread(served, "odd") == [], "until a person approves it"
    assert await in_thread(served, "good") == [1]
    await asyncio.to_thread(shutil.rmtree, zoo)
