"""Inputs and outputs of jobs in the console: where they are found, what is shown, who may, and what is written down."""

import asyncio
import io
import json
import math
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.db import connections
from django.test import Client
from msgspec.structs import replace

from console.accounts import sessions
from console.accounts.models import User
from console.audit.models import AuditEntry
from console.config import ConsoleSettings
from console.jobs.models import Job as Row
from console.payloads import downloads, folding, images, previews, services, snippets, stored
from console.payloads.request import Request
from console.payloads.stored import Part
from signalbox.bus.client import Bus
from signalbox.jobs import life, payloads
from signalbox.jobs.message import submit
from signalbox.jobs.records import Records
from signalbox.program.errors import NotFound, TooLarge
from signalbox.program.settings import Wire
from signalbox.wire import jobids, tensors
from signalbox.wire.messages import Job, Record, State
from signalbox.wire.names import Stream
from signalbox.wire.tensors import Tensor
from tests.console.conftest import in_thread
from tests.console.test_jobs import make
from tests.integration.signalbox.test_core_deadletters import dead, frame_of
from tests.rigs.submit import floats

PNG = b"\x89PNG\r\n\x1a\n" + b"rest of a picture"
ASKED = Request("0", "digits", 3, "serving_default", "hi", "shop")


def strings(*items: bytes, name: str = "s") -> Tensor:
    return Tensor(name, "string", (len(items),), b"".join(len(i).to_bytes(4, "little") + i for i in items))


def tensor(array: Any, name: str = "x") -> Tensor:
    return Tensor(name, array.dtype.name, array.shape, array.tobytes())


# ------------------------------------------------------------------------------------------- previews


def test_half_of_a_pair_in_json_is_shown_as_text_that_a_page_can_hold() -> None:
    tree = folding.tree('{"\\udc00": "a\\ud800"}')
    assert tree is not None
    (member,) = tree.members
    assert (member.name, member.text) == ("?", '"a?"')


def test_a_tensor_is_shown_by_figures_over_all_and_the_first_eight_by_eight() -> None:
    array = np.arange(2 * 20 * 30, dtype="int32").reshape(2, 20, 30)
    (shown,) = previews.of([tensor(array)])
    assert shown.figures == previews.Figures(0, 599.5, 1199, 0)
    assert shown.first == array[0, :8, :8].tolist()
    assert shown.shown == "8 × 8 of 20 × 30 at [0]"


def test_a_row_of_numbers_is_shown_in_rows_of_eight() -> None:
    (shown,) = previews.of([tensor(np.arange(10, dtype="uint8"))])
    assert shown.rows == [(0, [0, 1, 2, 3, 4, 5, 6, 7]), (8, [8, 9])]


@pytest.mark.parametrize(
    ("values", "figures"),
    [
        ([math.nan, 1.0, 3.0], (1.0, 2.0, 3.0, 1)),
        ([math.nan], (None, None, None, 1)),
        ([math.inf, -math.inf], ("-Infinity", "NaN", "Infinity", 0)),
    ],
)
def test_numbers_that_are_none_are_counted_and_left_out(values: list[float], figures: tuple[Any, ...]) -> None:
    (shown,) = previews.of([tensor(np.array(values, "float32"))])
    assert shown.figures == previews.Figures(*figures)
    json.dumps(shown.first, allow_nan=False)


@pytest.mark.parametrize("dtype", sorted(tensors.ITEM_SIZE))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0)])
def test_every_dtype_is_shown_and_written(dtype: str, shape: tuple[int, ...]) -> None:
    one = Tensor("x", dtype, shape, b"\0" * (tensors.ITEM_SIZE[dtype] * math.prod(shape)))
    (shown,) = previews.of([one])
    assert (shown.figures is None) == (math.prod(shape) == 0)
    value = np.array(downloads.named([one])["x"])
    assert value.shape[: len(shape)] == shape
    found = np.load(io.BytesIO(downloads.as_npz([one])), allow_pickle=False)
    assert found["x"].shape == shape


def test_a_bfloat16_is_read_as_the_float_that_it_is() -> None:
    one = Tensor("x", "bfloat16", (2,), b"\x80\x3f\x20\xc0")
    assert previews.of([one])[0].first == [[1.0, -2.5]]


def test_floats_have_the_digits_of_their_own_precision() -> None:
    assert downloads.named([tensor(np.array([0.1], "float32"))]) == {"x": [0.1]}


def test_a_large_tensor_is_added_up_in_parts() -> None:
    array = np.ones(previews._STEP + 5, "float32")
    array[-1] = 7
    (shown,) = previews.of([tensor(array)])
    assert shown.figures is not None
    assert (shown.figures.least, shown.figures.most) == (1.0, 7.0)
    assert shown.left_out == 0


def test_a_text_is_cut_and_says_how_much_is_hidden() -> None:
    (shown,) = previews.of([strings(b"x" * 5000, b"\xff\xfe", *[b"y"] * 100)])
    assert (len(shown.texts[0].text), shown.texts[0].hidden) == (previews.MOST_LETTERS, 3000)
    assert (shown.texts[1].text, shown.texts[1].is_text) == ("ff fe", False)
    assert shown.left_out == 102 - previews.MOST_TEXTS


def test_json_is_folded_with_exact_whole_numbers_and_bounds() -> None:
    tree = folding.tree('{"id": 123456789012345678901234567890, "rows": [1, 2]}')
    assert tree is not None
    assert [member.name for member in tree.members] == ["id", "rows"]
    assert tree.members[0].text == "123456789012345678901234567890"
    wide = folding.tree(json.dumps(list(range(2000))))
    assert wide is not None
    assert (len(wide.members), wide.left_out) == (folding.MOST_NODES - 1, 2001 - folding.MOST_NODES)
    deep = folding.tree("[" * 100 + "]" * 100)
    depth = 0
    while deep is not None and deep.members:
        deep, depth = deep.members[0], depth + 1
    assert depth < folding.MOST_DEPTH


@pytest.mark.parametrize("text", ["", "7", "{", "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "x" * 300_000])
def test_what_is_no_json_or_too_much_of_it_is_no_tree(text: str) -> None:
    assert folding.tree(text) is None


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", ""),
        (b"<html><script>alert(1)</script>", ""),
        (b"RIFF\0\0\0\0WAVE", ""),
        (b"", ""),
    ],
)
def test_an_image_is_known_by_its_first_bytes_and_svg_is_none(data: bytes, kind: str) -> None:
    assert images.kind_of(data) == kind


def test_images_of_a_preview_are_found_at_the_places_it_names() -> None:
    found = [tensor(np.zeros((1, 16, 16), "float32")), strings(b"text", PNG)]
    pixels, texts = previews.of(found)
    assert (pixels.image, texts.texts[1].image) == ("0", "1-1")
    assert previews.image(found, "1-1") == images.Image("image/png", PNG)
    picture = previews.image(found, "0")
    assert picture is not None
    assert images.kind_of(picture.data) == "image/png"
    for place in ("", "7", "1-0", "1-9", "0-0", "1", "-1", "1-", "1-1-1", "999999", "x"):
        assert previews.image(found, place) is None, place


@pytest.mark.parametrize("shape", [(16, 24, 3), (2, 16, 24, 3), (16, 24, 1), (1, 16, 16)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_pixels_become_a_picture_of_their_size(shape: tuple[int, ...], dtype: str) -> None:
    picture = images.of_pixels(tensor(np.ones(shape, dtype)))
    assert picture is not None
    sides = shape[1:3] if len(shape) == 4 or shape[-1] == 16 else shape[:2]
    assert picture.data[16:24] == sides[1].to_bytes(4, "big") + sides[0].to_bytes(4, "big")


@pytest.mark.parametrize("shape", [(), (9,), (16, 16), (4, 4, 3), (3, 16, 20), (4000, 4000, 3)])
def test_what_looks_like_no_pixels_is_no_picture(shape: tuple[int, ...]) -> None:
    one = Tensor("x", "uint8", shape, b"\0" * math.prod(shape))
    assert images.of_pixels(one) is None


# ------------------------------------------------------------------------------------------- files and snippets


def test_strings_are_written_as_json_and_never_as_npz() -> None:
    one = strings(b"plain", b"\xff")
    assert downloads.named([one]) == {"s": ["plain", {"b64": "/w=="}]}
    with pytest.raises(TooLarge):
        downloads.as_npz([one])


def test_names_of_arrays_are_no_paths_and_stay_apart() -> None:
    array = np.zeros(1, "int8")
    found = np.load(io.BytesIO(downloads.as_npz([tensor(array, "../a/b"), tensor(array, ".._a_b"), tensor(array, "")])))
    assert sorted(found.files) == [".._a_b", ".._a_b_", "_"]


def test_too_many_elements_are_not_written_as_json() -> None:
    with pytest.raises(TooLarge):
        downloads.named([tensor(np.zeros(downloads.MOST_ELEMENTS + 1, "int8"))])


def test_snippets_have_a_small_input_and_no_key() -> None:
    again = snippets.of(ASKED, {"x": ["it's\n$(rm -rf /)"]})
    body = again.curl.partition("<<'JSON'\n")[2].partition("\nJSON")[0]
    assert json.loads(body) == {
        "model": "digits",
        "version": 3,
        "signature_name": "serving_default",
        "priority": "hi",
        "input": {"x": ["it's\n$(rm -rf /)"]},
    }
    assert "$SIGNALBOX_KEY" in again.curl
    compile(again.python, "snippet", "exec")
    large = snippets.of(ASKED, {"x": "y" * 5000})
    assert (large.is_filled, "request.json" in large.curl, "request.json" in large.python) == (False, True, True)


# ------------------------------------------------------------------------------------------- where they are


def job(frame: bytes, **more: Any) -> Job:
    now = time.time()
    fields: dict[str, Any] = {"model": "half", "version": 1, "signature": "s", "account_id": "shop"}
    job_id = jobids.new_job_id(now, uuid.uuid4().int)
    return Job(id=job_id, created_at=now, deadline_at=now + 60, size_bytes=len(frame), **(fields | more))


@pytest.mark.parametrize("size", [100, 400_000])
async def test_the_input_of_a_waiting_job_is_found(bus: Bus, size: int) -> None:
    frame = frame_of(size)
    waiting = job(frame)
    if size > payloads.INLINE_LIMIT_BYTES:
        waiting = replace(waiting, ref=(await payloads.store_input(bus, waiting, frame)).ref)
    await submit(bus, waiting, b"" if waiting.ref is not None else frame)
    found = await stored.read(bus, waiting.id, Part.INPUT, None)
    assert (found.frame, found.request.account_id) == (frame, "shop")
    none = await stored.read(bus, waiting.id, Part.OUTPUT, None)
    assert (none.frame, none.why) == (None, "There is no output yet: the job is queued.")


async def test_the_input_of_a_delayed_job_is_found_by_its_record(bus: Bus) -> None:
    frame = frame_of(1000)
    later = job(frame, not_before=time.time() + 60)
    later = replace(later, ref=(await payloads.store_input(bus, later, frame)).ref)
    await Records(bus).write(life.first_record(later, State.QUEUED), expect=0)
    assert (await stored.read(bus, later.id, Part.INPUT, None)).frame == frame


@pytest.mark.parametrize("size", [100, 400_000])
async def test_the_input_of_a_dead_letter_is_found_after_its_job_has_ended(bus: Bus, size: int) -> None:
    old = await dead(bus, frame_of(size))
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.INPUTS}")
    found = await stored.read(bus, old.id, Part.INPUT, None)
    assert found.frame is not None
    assert (len(found.frame) > size, found.where) == (True, "with its dead letter")


async def ended(bus: Bus, one: Job, frame: bytes, **more: Any) -> Record:
    """Its record as a worker ends it."""
    record = life.claimed(one, None, worker="w", gpu="g", token=1, now=time.time())
    record = life.succeeded(record, now=time.time(), batch=1, size_bytes=len(frame), **more)
    await Records(bus).write(record, b"" if record.ref is not None else frame, expect=0)
    return record


@pytest.mark.parametrize("is_large", [False, True])
async def test_an_output_is_found_and_when_it_has_gone_the_page_says_since_when(bus: Bus, *, is_large: bool) -> None:
    frame, one = floats(1.0), job(b"")
    ref = await payloads.store(bus, "shop", one.id, "out1", frame) if is_large else None
    await ended(bus, one, frame, ref=ref)
    assert (await stored.read(bus, one.id, Part.OUTPUT, None)).frame == frame
    gone = await stored.read(bus, one.id, Part.INPUT, None)
    assert gone.frame is None
    assert "The input went when the job ended, 20" in gone.why
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.PAYLOADS}")
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.STATE}")
    row = Row(id=one.id, model="half", version=1, state="succeeded", account_id="shop")
    why = (await stored.read(bus, one.id, Part.OUTPUT, row)).why
    assert why == "The output is gone: it is stored for 24 h after the end of a job, less where room is short."


async def test_nothing_is_shown_of_a_job_that_was_deleted(bus: Bus) -> None:
    one = job(floats(1.0))
    await submit(bus, one, floats(1.0))
    record = life.deleted(await ended(bus, one, b""), now=1_000_000.0)
    await Records(bus).write(record, expect=(await Records(bus).read(one.id) or (None, 0))[1])
    for part in Part:
        found = await stored.read(bus, one.id, part, None)
        assert (found.frame, found.why) == (None, "The job was deleted, 1970-01-12 13:46:40 UTC.")


@pytest.mark.parametrize("part", Part)
async def test_a_job_that_nobody_knows_is_not_found(bus: Bus, part: Part) -> None:
    for unknown in (job(b"").id, "thing", "x.>"):
        with pytest.raises(NotFound):
            await stored.read(bus, unknown, part, None)


async def test_what_is_too_large_is_not_read(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = frame_of(400_000)
    waiting = job(frame)
    waiting = replace(waiting, ref=(await payloads.store_input(bus, waiting, frame)).ref)
    await submit(bus, waiting)
    monkeypatch.setattr(stored, "MOST_BYTES", 1000)
    with pytest.raises(TooLarge, match="reads at most"):
        await stored.read(bus, waiting.id, Part.INPUT, None)


# ------------------------------------------------------------------------------------------- pages and REST


@pytest.fixture
def nearby(console: ConsoleSettings, settings: Any, wire: Wire) -> None:
    """A console that reaches NATS."""
    settings.CONSOLE = replace(console, nats_url=wire.nats_url)


async def get(user: User, url: str, *, minutes: float = 0, token: str = "") -> Any:
    """A page as somebody sees it who entered the password so many minutes ago."""

    def send() -> Any:
        client = Client(headers={"Authorization": f"Bearer {token}"} if token else {})
        if not token:
            client.force_login(user)
            session = client.session
            session[sessions._CONFIRMED] = time.time() - minutes * 60
            session.save()
        try:
            answer: Any = client.get(url)
            answer.opened_by = client
            return answer
        finally:
            connections.close_all()

    return await asyncio.to_thread(send)


async def entries(**what: Any) -> list[AuditEntry]:
    return await in_thread(lambda: list(AuditEntry.objects.filter(**what)))


pytestmark_db = pytest.mark.django_db(transaction=True)


@pytestmark_db
async def test_a_reading_leaves_one_row_that_names_who_which_job_and_what(
    nearby: None, cast: dict[str, User], bus: Bus
) -> None:
    waiting = job(b"")
    await submit(bus, waiting, tensors.encode([strings(b"<script>alert(1)</script>"), tensor(np.zeros(3))]))
    page = await get(cast["model manager"], f"/jobs/{waiting.id}/input")
    text = page.content.decode()
    assert page.status_code == 200
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text
    (row,) = await entries(target=waiting.id)
    assert (row.actor_name, row.act, row.result) == ("model-manager", "jobs.payload", "done")
    assert row.after["read"] == "input"
    assert row.after["account"] == "shop"


@pytestmark_db
@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_those_without_the_right_read_nothing_and_are_in_the_audit(
    nearby: None, cast: dict[str, User], bus: Bus, role: str
) -> None:
    waiting = job(b"")
    await submit(bus, waiting, floats(1.0))
    await in_thread(lambda: make(1, id=waiting.id, state="queued"))
    for part in Part:
        assert (await get(cast[role], f"/jobs/{waiting.id}/{part}")).status_code == 403
        assert (await get(cast[role], f"/jobs/{waiting.id}/{part}/images/0?of=x")).status_code == 403
        assert (await get(cast[role], f"/api/jobs/{waiting.id}/{part}")).status_code == 403
    results = [row.result for row in await entries(target=waiting.id)]
    assert results == ["refused"] * 4
    page = (await get(cast[role], f"/jobs/{waiting.id}")).content.decode()
    assert f"/jobs/{waiting.id}/input" not in page
    assert "curl -X POST" in page


@pytestmark_db
async def test_the_password_is_asked_after_five_minutes(nearby: None, cast: dict[str, User], bus: Bus) -> None:
    waiting = job(b"")
    await submit(bus, waiting, floats(1.0))
    page = await get(cast["admin"], f"/jobs/{waiting.id}/input", minutes=6)
    assert (page.status_code, page["Location"]) == (302, f"/confirm?next=%2Fjobs%2F{waiting.id}%2Finput")
    assert (await get(cast["admin"], f"/api/jobs/{waiting.id}/input", minutes=6)).status_code == 403
    assert not await entries(target=waiting.id, result="done")


@pytestmark_db
async def test_an_image_is_served_apart_and_only_with_the_page_that_showed_it(
    nearby: None, cast: dict[str, User], bus: Bus
) -> None:
    waiting = job(b"")
    await submit(bus, waiting, tensors.encode([strings(PNG, b"<svg/>")]))
    page = await get(cast["admin"], f"/jobs/{waiting.id}/input")
    url = page.content.decode().partition('<img class="picture" src="')[2].partition('"')[0]
    assert url.startswith(f"/jobs/{waiting.id}/input/images/0-0?of=")

    def again(path: str) -> Any:
        try:
            return page.opened_by.get(path)
        finally:
            connections.close_all()

    image = await asyncio.to_thread(again, url)
    assert (image.status_code, image.content, image["Content-Type"]) == (200, PNG, "image/png")
    assert image["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert image["X-Content-Type-Options"] == "nosniff"
    assert image["Content-Disposition"].startswith("inline; filename=")
    assert (await asyncio.to_thread(again, url.replace("0-0", "0-1"))).status_code == 404
    assert (await asyncio.to_thread(again, url.replace("/input/", "/output/"))).status_code == 404
    assert (await get(cast["admin"], url)).status_code == 404, "another login did not see the page"
    assert len(await entries(target=waiting.id)) == 1


@pytestmark_db
async def test_a_file_is_the_body_that_the_api_takes_or_arrays(nearby: None, cast: dict[str, User], bus: Bus) -> None:
    waiting = job(b"")
    await submit(bus, waiting, floats(1.5))
    url = f"/jobs/{waiting.id}/input?download="
    answer = await get(cast["admin"], f"{url}json")
    assert answer["Content-Disposition"] == f'attachment; filename="job-{waiting.id}-input.json"'
    doc = json.loads(answer.content)
    assert (doc["model"], doc["version"], doc["priority"]) == ("half", 1, "mid")
    (name,) = doc["input"]
    arrays = np.load(io.BytesIO((await get(cast["admin"], f"{url}npz")).content))
    assert arrays[name].tolist() == doc["input"][name]
    assert (await get(cast["admin"], f"{url}exe")).status_code == 400
    assert [row.after["as"] for row in await entries(target=waiting.id)] == ["npz", "json"]


@pytestmark_db
async def test_a_program_reads_the_same(nearby: None, cast: dict[str, User], bus: Bus, call: Any) -> None:
    waiting = job(b"")
    await submit(bus, waiting, tensors.encode([tensor(np.array([math.nan, 1.0], "float32")), strings(b"hello")]))
    send = await in_thread(call, "model manager")
    read: Callable[[str], Any] = lambda path: asyncio.to_thread(_closing, send, path)  # noqa: E731
    answer = await read(f"jobs/{waiting.id}/input")
    doc = answer.json()
    assert (answer.status_code, doc["is_there"]) == (200, True)
    numbers, texts = doc["tensors"]
    assert (numbers["figures"], numbers["first"]) == (
        {"least": 1.0, "mean": 1.0, "most": 1.0, "nan": 1},
        [["NaN", 1.0]],
    )
    assert texts["texts"][0]["text"] == "hello"
    whole = await read(f"jobs/{waiting.id}/input?download=json")
    assert json.loads(whole.content)["input"]["s"] == ["hello"]
    assert not (await read(f"jobs/{waiting.id}/output")).json()["is_there"]
    assert (await read(f"jobs/{waiting.id}/output?download=json")).status_code == 410
    assert (await read(f"jobs/{waiting.id}/input?download=npz")).status_code == 413


def _closing(send: Any, path: str) -> Any:
    try:
        return send("get", path)
    finally:
        connections.close_all()


@pytestmark_db
async def test_what_has_gone_is_said_on_the_page(nearby: None, cast: dict[str, User], bus: Bus) -> None:
    one = job(b"")
    await ended(bus, one, floats(1.0))
    page = (await get(cast["admin"], f"/jobs/{one.id}/input")).content.decode()
    assert "The input went when the job ended" in page
    assert "request.json" in page
    assert (await get(cast["admin"], f"/jobs/{one.id}/output")).status_code == 200


@pytestmark_db
async def test_readers_have_turns(nearby: None, cast: dict[str, User], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_TURN_S", 0.01)
    with services.turn(), services.turn():
        answer = await get(cast["admin"], f"/jobs/{job(b'').id}/input")
    assert answer.status_code == 503
    assert answer["Retry-After"] == "2"
