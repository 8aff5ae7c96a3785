"""A real runner with real SavedModels, through the guard and the supervisor's link."""

import asyncio
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from signalbox.program.errors import (
    InvalidInput,
    InvalidRequest,
    LeaseLost,
    ModelError,
    NotFound,
    OutOfMemory,
    RunnerCrashed,
)
from signalbox.wire import tensors
from signalbox.wire.tensors import ITEM_SIZE, Tensor
from signalbox.wire.warmups import WarmUp, WarmUpInput
from signalbox.wire.workerdocs import Device
from tests.rigs import models, oddmodels
from verification.chaos.evidence import intervals
from workers.device.guardedrunner import GuardedRunner, _environment
from workers.device.settings import DeviceSettings
from workers.guard.link import GuardReport
from workers.runner import savedmodel
from workers.runner.link import RunnerLink
from workers.runner.staging import Staging

pytestmark = pytest.mark.asyncio(loop_scope="module")
DEVICE = Device(id="CPU-test-0", kind="cpu", name="test")
LIMIT_S = 60.0
FAR_NS = 1 << 62


class Shown(Staging):
    """Tells when a version is shown to the runner."""

    def __init__(self, shown: asyncio.Event, *facts: Any) -> None:
        super().__init__(*facts)
        self._shown = shown

    @asynccontextmanager
    async def staged(self, source: Path) -> AsyncIterator[Path]:
        async with super().staged(source) as place:
            self._shown.set()  # and the load is asked for before anybody else's turn
            yield place


class House:
    """A guard and a runner that is inside its device, with no lease around them."""

    def __init__(self, folder: Path) -> None:
        self.entered, self.left, self.shown = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.token = 0
        self.verbs: list[str] = []
        self.log = folder / "intervals"
        self.guarded = GuardedRunner(
            DEVICE,
            DeviceSettings(lock_dir=folder, staging_dir=folder, interval_log=str(self.log)),
            on_report=self.receive,
            make_stages=partial(Shown, self.shown),
        )
        self.guarded.start()

    def receive(self, word: GuardReport) -> None:
        self.verbs.append(word.verb)
        if word.verb == "ready":
            self.guarded.order("lock")
        elif word.verb == "locked":
            self.token += 1
            self.guarded.order("enter", self.token, FAR_NS)
        elif word.verb == "entered":
            self.guarded.runner.admit(word.number)
            self.entered.set()

        elif word.verb in {"left", "fenced"}:
            self.left.set()

    async def close(self) -> None:
        await self.guarded.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    house = House(tmp_path_factory.mktemp("runner"))
    async with asyncio.timeout(LIMIT_S):
        await house.entered.wait()
    yield house
    await house.close()


@pytest_asyncio.fixture(loop_scope="module")
async def runner(house: House) -> RunnerLink:
    async with asyncio.timeout(LIMIT_S):
        await house.guarded.runner.entered.wait()
    return house.guarded.runner


def floats(name: str, *values: float) -> bytes:
    data = struct.pack(f"<{len(values)}f", *values)
    return tensors.encode([Tensor(name, "float32", (len(values),), data)])


def texts(*values: bytes) -> bytes:
    data = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    return tensors.encode([Tensor("text", "string", (len(values),), data)])


def values_of(frame: bytes) -> list[float]:
    (tensor,) = tensors.decode(frame)
    return list(struct.unpack(f"<{len(tensor.data) // 4}f", tensor.data))


@pytest.fixture(scope="module")
def shown() -> list[str]:
    """What a process with TensorFlow prints: what it has of Keras and of garbage, and how it shortens an error."""
    errors = (
        "2 root error(s) found.\\n  (0) FAILED_PRECONDITION: {{function_node __inference_f_1}} No variable w.\\n"
        "\\t [[{{node Add}}]]\\n  (1) FAILED_PRECONDITION: No variable w.\\n0 successful operations."
    )
    code = (
        "import gc, sys; from workers.runner.process import _tensorflow; _tensorflow('cpu', 1, 1);"
        "print('keras' in sys.modules, gc.isenabled(), gc.get_freeze_count() > 100_000);"
        f"from workers.runner.tferrors import brief; print(brief(ValueError('{errors}')))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=_environment(DEVICE), text=True, check=True)
    return done.stdout.splitlines()


async def test_a_runner_starts_without_keras_and_does_not_look_for_garbage_in_tensorflow(shown: list[str]) -> None:
    assert shown[0] == "False True True"


async def test_jobs_are_joined_and_their_rows_split_back(runner: RunnerLink) -> None:
    await runner.load("half", 1, str(models.half_plus_two()))
    jobs = [floats("x", 1.0), floats("x", 2.0, 3.0), floats("x", 4.0)]
    report = await runner.run("half", 1, "serving_default", jobs)
    assert [values_of(frame) for frame in report.frames] == [[2.5], [3.0, 3.5], [4.0]]
    assert report.seconds > 0


async def test_load_reports_signatures_memory_and_warm_up(runner: RunnerLink) -> None:
    await runner.unload("half", 1)
    report = await runner.load("half", 1, str(models.half_plus_two()))
    assert report.signatures["serving_default"].inputs["x"].dtype == "float32"
    assert report.signatures["serving_default"].outputs["y"].shape == (-1,)
    assert report.size_bytes > 0
    assert report.warmed == 2
    assert runner.loaded["half", 1] == report


async def test_made_up_warm_ups_are_run_after_those_of_the_files_where_the_version_takes_them(
    runner: RunnerLink,
) -> None:
    await runner.unload("half", 1)
    zeros = WarmUp("zeros", {"x": WarmUpInput("float32", (3,))}, count=5)
    random = WarmUp("random", {"x": WarmUpInput("float32", (1,), is_random=True)})
    other = WarmUp("other", {"x": WarmUpInput("int32", (3,))}, count=7)
    report = await runner.load("half", 1, str(models.half_plus_two()), warm_ups=(zeros, random, other))
    assert report.warmed == 2 + 5 + 1
    await runner.unload("half", 1)
    assert (await runner.load("half", 1, str(models.half_plus_two()), warm=False, warm_ups=(zeros,))).warmed == 0


@pytest.mark.parametrize("is_random", [False, True], ids=["zeros", "random"])
async def test_a_warm_up_is_made_up_of_every_dtype(runner: RunnerLink, is_random: bool) -> None:
    await runner.unload("mirror", 1)
    inputs = {f"x_{dtype}": WarmUpInput(dtype, (3, 2), is_random) for dtype in (*ITEM_SIZE, "string")}
    report = await runner.load("mirror", 1, str(models.mirror()), warm_ups=(WarmUp("all", inputs, count=2),))
    assert report.warmed == 2


async def test_a_made_up_warm_up_that_fails_fails_the_load_and_not_the_runner(runner: RunnerLink) -> None:
    pid = runner.pid
    five = WarmUp("five", {"x": WarmUpInput("float32", (5,))})
    with pytest.raises(OutOfMemory):
        await runner.load("greedy_warmed", 1, str(models.greedy()), warm_ups=(five,))
    assert ("greedy_warmed", 1) not in runner.loaded
    assert runner.pid == pid


async def test_damaged_warm_up_requests_fail_the_load_and_not_the_runner(runner: RunnerLink, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(models.half_plus_two(), tmp_path / "1"))
    record = b"\xff\xff\xff\xff"
    (damaged / "assets.extra" / "tf_serving_warmup_requests").write_bytes(
        struct.pack("<QI", len(record), 0) + record + bytes(4)
    )
    pid = runner.pid
    with pytest.raises(ModelError, match="damaged"):
        await runner.load("damaged", 1, str(damaged))
    assert runner.pid == pid


async def test_strings_travel_both_ways(runner: RunnerLink) -> None:
    await runner.load("shout", 1, str(models.shout()))
    jobs = [texts(b"abc", b""), texts("übel".encode())]
    report = await runner.run("shout", 1, "serving_default", jobs, ("loud",))
    loud = [tensors.decode(frame)[0] for frame in report.frames]
    assert [t.shape for t in loud] == [(2,), (1,)]
    assert loud[0].data == b"\x03\0\0\0ABC\0\0\0\0"
    sizes = (await runner.run("shout", 1, "serving_default", jobs, ("size",))).frames
    assert tensors.decode(sizes[0])[0].dtype == "int32"


@pytest.mark.parametrize(
    "shape", [(1, 2), (2,), (), (0,), (2, 0, 3), (1, 1, 2)], ids=lambda shape: f"rank {len(shape)}"
)
async def test_every_dtype_comes_back_bit_by_bit_in_every_rank(runner: RunnerLink, shape: tuple[int, ...]) -> None:
    await runner.load("mirror", 1, str(models.mirror()))
    count = math.prod(shape)
    sent = [Tensor(f"x_{dtype}", dtype, shape, bytes([1] * size * count)) for dtype, size in ITEM_SIZE.items()]
    sent.append(Tensor("x_string", "string", shape, b"\x02\0\0\0a\0" * count))
    report = await runner.run("mirror", 1, "serving_default", [tensors.encode(sent)])
    got = {tensor.name[2:]: tensor for tensor in tensors.decode(report.frames[0])}
    assert len(got) == len(ITEM_SIZE) + 1
    for tensor in sent:
        back = got[tensor.name[2:]]
        assert (back.dtype, back.shape, back.data) == (tensor.dtype, shape, tensor.data)


async def test_shapes_are_tensorflow_s_to_judge_and_not_the_signature_s(runner: RunnerLink) -> None:
    report = await runner.load("theirs", 1, str(models.half_plus_two_v1()))
    assert report.signatures["serving_default"].inputs["x"].shape == (-1, 1)
    one = tensors.encode([Tensor("x", "float32", (), struct.pack("<f", 3.0))])
    for job, want in ((floats("x", 1.0, 2.0, 5.0), [2.5, 3.0, 4.5]), (one, [3.5])):
        done = await runner.run("theirs", 1, "serving_default", [job])
        (sent,), (got,) = tensors.decode(job), tensors.decode(done.frames[0])
        assert got.shape == sent.shape
        assert values_of(done.frames[0]) == want


async def test_what_tensorflow_refuses_is_the_caller_s_and_names_what_the_signature_says(runner: RunnerLink) -> None:
    await runner.load("weigh", 1, str(models.weigh()))
    right = tensors.encode([Tensor("x", "float32", (1, 8), bytes(32))])
    wrong = tensors.encode([Tensor("x", "float32", (2, 4), bytes(32))])
    report = await runner.run("weigh", 1, "serving_default", [right, wrong, right])
    assert list(report.errors) == [1]
    error = report.errors[1]
    assert type(error) is InvalidInput
    assert error.public_message == (
        'Matrix size-incompatible: In[0]: [2,4], In[1]: [8,3]. Input "x" has shape [2, 4]; the signature says [-1, 8].'
    )


async def test_every_dtype_comes_back_bit_by_bit_from_a_batch(runner: RunnerLink) -> None:
    await runner.load("mirror", 1, str(models.mirror()))

    def job(seed: int) -> list[Tensor]:
        made = [Tensor(f"x_{dtype}", dtype, (1, 2), bytes([seed % 2] * size * 2)) for dtype, size in ITEM_SIZE.items()]
        return [*made, Tensor("x_string", "string", (1, 2), b"\x01\0\0\0a\0\0\0\0")]

    sent = [job(0), job(1), list(reversed(job(1)))]
    frames = [tensors.encode(one) for one in sent]
    report = await runner.run("mirror", 1, "serving_default", frames)
    for job_sent, frame in zip(sent, report.frames, strict=True):
        got = {tensor.name[2:]: tensor for tensor in tensors.decode(frame)}
        assert len(got) == len(ITEM_SIZE) + 1
        for tensor in job_sent:
            back = got[tensor.name[2:]]
            assert (back.dtype, back.shape, back.data) == (tensor.dtype, (1, 2), tensor.data)


async def test_one_bad_job_does_not_fail_its_neighbours(runner: RunnerLink) -> None:
    await runner.load("picky", 1, str(models.picky()))
    jobs = [floats("x", 1.0), floats("x", -1.0), floats("x", 3.0)]
    report = await runner.run("picky", 1, "serving_default", jobs)
    assert [values_of(frame) for frame in (report.frames[0], report.frames[2])] == [[1.0], [3.0]]
    assert list(report.errors) == [1]
    assert "must not be negative" in report.errors[1].public_message


async def test_a_job_that_the_model_refuses_is_an_invalid_input_without_our_paths(runner: RunnerLink) -> None:
    await runner.load("picky", 1, str(models.picky()))
    with pytest.raises(InvalidInput, match="must not be negative, see <path>"):
        await runner.run("picky", 1, "serving_default", [floats("x", -1.0)])


async def test_result_without_rows_is_computed_job_by_job(runner: RunnerLink) -> None:
    await runner.load("total", 1, str(models.total()))
    jobs = [floats("x", 1.0, 2.0), floats("x", 5.0)]
    report = await runner.run("total", 1, "serving_default", jobs)
    assert [values_of(frame) for frame in report.frames] == [[3.0], [5.0]]


async def test_wrong_requests_are_named(runner: RunnerLink) -> None:
    await runner.load("half", 1, str(models.half_plus_two()))
    with pytest.raises(NotFound, match="version 9 is not loaded"):
        await runner.run("half", 9, "serving_default", [floats("x", 1.0)])
    with pytest.raises(InvalidInput, match="no signature 'other'"):
        await runner.run("half", 1, "other", [floats("x", 1.0)])
    with pytest.raises(InvalidInput, match="no output 'z'"):
        await runner.run("half", 1, "serving_default", [floats("x", 1.0)], ("z",))
    with pytest.raises(InvalidInput):
        await runner.run("half", 1, "serving_default", [floats("q", 1.0)])
    short = tensors.encode([Tensor("x", "float32", (2,), b"\0\0\0\0")])
    with pytest.raises(InvalidInput, match="do not fill"):
        await runner.run("half", 1, "serving_default", [short])
    with pytest.raises(InvalidRequest):
        await runner.run("half", 1, "serving_default", [b"no frame"])


async def test_directory_without_a_model_cannot_be_loaded(runner: RunnerLink, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        await runner.load("nothing", 1, str(tmp_path))


@pytest.mark.parametrize(
    ("signature", "given", "want"),
    [
        ("serving_default", {"x": 2.0}, 3.0),
        ("keywords", {"self": 1.0, "class": 2.0, "from": 3.0}, 321.0),
        ("area", {"area (m²)": 4.0}, 8.0),
        ("twins", {"a-b": 1.0, "a_b": 2.0}, 21.0),
    ],
)
async def test_inputs_may_have_any_name(
    runner: RunnerLink, signature: str, given: dict[str, float], want: float
) -> None:
    await runner.load("names", 1, str(oddmodels.folder() / "names" / "1"))
    sent = [Tensor(name, "float32", (1,), struct.pack("<f", value)) for name, value in given.items()]
    report = await runner.run("names", 1, signature, [tensors.encode(sent)])
    assert values_of(report.frames[0]) == [want]


async def test_of_several_graphs_the_one_tagged_serve_and_nothing_else_is_served(runner: RunnerLink) -> None:
    await runner.load("graphs", 1, str(oddmodels.folder() / "graphs" / "1"))
    assert values_of((await runner.run("graphs", 1, "serving_default", [floats("x", 1.0)])).frames[0]) == [4.0]
    with pytest.raises(InvalidRequest, match=r"no graph tagged 'serve' and nothing else. .* tagged: gpu, serve\."):
        await runner.load("gpu_only", 1, str(oddmodels.folder() / "gpu_only" / "1"))


async def test_a_signature_without_inputs_is_run(runner: RunnerLink) -> None:
    await runner.load("defaults", 1, str(oddmodels.folder() / "defaults" / "1"))
    report = await runner.run("defaults", 1, "constant", [tensors.encode([])])
    assert values_of(report.frames[0]) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("model", "signature", "words"),
    [
        ("composite", "ragged", 'The output "words" is a ragged tensor; only dense .* can be had: n'),
        ("composite", "sparse", 'The output "words" is a sparse tensor'),
        ("sparse_input", "sums", 'The input "s" is a sparse tensor; only dense tensors can be sent'),
    ],
)
async def test_what_is_no_dense_tensor_is_named_and_the_rest_is_served(
    runner: RunnerLink, model: str, signature: str, words: str
) -> None:
    await runner.load(model, 1, str(oddmodels.folder() / model / "1"))
    sent = texts(b"a b", b"c") if model == "composite" else floats("s", 1.0)
    with pytest.raises(ModelError, match=words):
        await runner.run(model, 1, signature, [sent])
    if model == "composite":
        (n,) = tensors.decode((await runner.run(model, 1, signature, [sent], ("n",))).frames[0])
        assert struct.unpack("<2i", n.data) == (3, 1)


async def test_only_the_outputs_asked_for_are_computed_and_few_ways_to_ask_are_kept(runner: RunnerLink) -> None:
    await runner.load("mirror", 1, str(models.mirror()))
    names = [f"y_{dtype}" for dtype in ITEM_SIZE]
    sent = [Tensor(f"x_{dtype}", dtype, (1,), bytes(size)) for dtype, size in ITEM_SIZE.items()]
    frame = tensors.encode([*sent, Tensor("x_string", "string", (1,), b"\x01\0\0\0a")])
    for wanted in [*((name,) for name in names), tuple(names), (names[0],)]:
        report = await runner.run("mirror", 1, "serving_default", [frame], wanted)
        assert tuple(tensor.name for tensor in tensors.decode(report.frames[0])) == wanted


@pytest.mark.parametrize("model", ["elsewhere", "away"])
async def test_a_node_on_a_device_of_another_machine_is_refused_by_the_devices_name(
    runner: RunnerLink, model: str
) -> None:
    """TensorFlow places a graph of version 1 when it is loaded, and functions when they are called."""
    named = f"explicitly assigned to {oddmodels.FAR} but available devices are \\[ /job:localhost/"
    path = str(oddmodels.folder() / model / "1")
    if model == "elsewhere":
        with pytest.raises(ModelError, match=named):
            await runner.load(model, 1, path)
        return
    await runner.load(model, 1, path)
    with pytest.raises(InvalidInput, match=named):
        await runner.run(model, 1, "serving_default", [floats("x", 1.0)])
    assert values_of((await runner.run(model, 1, "near", [floats("x", 2.0)])).frames[0]) == [3.0]


async def test_the_first_of_several_errors_is_shown(shown: list[str]) -> None:
    assert shown[1] == "No variable w."


async def test_a_version_that_is_unloaded_leaves_its_memory(tmp_path: Path) -> None:
    """Variables of 64 MB, loaded and unloaded five times by an engine of its own, which looks for no garbage among what
    TensorFlow is, and leaves none.
    """
    code = (
        "import gc, sys; from pathlib import Path; from workers.runner.engine import TensorFlowEngine;"
        "page = 4096; rss = lambda: int(Path('/proc/self/statm').read_text().split()[1]) * page;"
        "engine = TensorFlowEngine('cpu', intra_threads=1, inter_threads=1); seen = []; looked = []\n"
        "frozen = gc.get_freeze_count(); gc.callbacks.append(lambda *_: looked.append(len(gc.get_objects())))\n"
        "for _ in range(5):\n"
        "    engine.load('m', 1, sys.argv[1], is_warm=False, digest=''); loaded = rss()\n"
        "    engine.unload('m', 1); seen.append((loaded, rss()))\n"
        "print(all(loaded - after > 60e6 for loaded, after in seen), seen[-1][1] - seen[0][1] < 20e6,"
        " max(looked) < frozen / 2, gc.get_freeze_count() - frozen < 1_000, seen, looked, gc.get_freeze_count())"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(models.heavy()), stdout=asyncio.subprocess.PIPE, env=_environment(DEVICE)
    )
    out, _ = await process.communicate()
    assert out.split()[:4] == [b"True"] * 4, out


async def test_abort_in_the_model_is_a_crash_and_the_next_runner_serves(runner: RunnerLink) -> None:
    await runner.load("picky", 1, str(models.picky()))
    before = runner.pid
    with pytest.raises(RunnerCrashed):
        await runner.run("picky", 1, "serving_default", [floats("x", -1000.0)])
    async with asyncio.timeout(LIMIT_S):
        await runner.restart()
    assert runner.pid != before
    assert runner.loaded == {}
    await runner.load("half", 1, str(models.half_plus_two()))
    report = await runner.run("half", 1, "serving_default", [floats("x", 2.0)])
    assert values_of(report.frames[0]) == [3.0]


async def test_runner_outside_the_device_runs_nothing(house: House, runner: RunnerLink) -> None:
    await runner.load("half", 1, str(models.half_plus_two()))
    house.entered.clear()
    runner.expel()
    house.guarded.order("leave")
    with pytest.raises(LeaseLost):
        await runner.run("half", 1, "serving_default", [floats("x", 1.0)])
    async with asyncio.timeout(LIMIT_S):
        await house.left.wait()
    assert ("half", 1) in runner.loaded  # a virtual device's runner keeps what it has loaded
    house.guarded.order("lock")
    async with asyncio.timeout(LIMIT_S):
        await house.entered.wait()
    await runner.run("half", 1, "serving_default", [floats("x", 1.0)])


async def test_runs_go_on_beside_a_load_ahead(runner: RunnerLink) -> None:
    path = str(models.slow_to_warm_up())
    await runner.load("half", 1, str(models.half_plus_two()))
    loading = asyncio.create_task(runner.load("warmed", 1, path, is_beside=True))
    await asyncio.sleep(0)
    meanwhile = 0
    for n in range(20):
        report = await runner.run("half", 1, "serving_default", [floats("x", float(n))])
        assert values_of(report.frames[0]) == [n / 2 + 2]
        meanwhile += not loading.done()
    assert meanwhile > 0, "no run was answered before the load had ended"
    assert (await loading).warmed == 1
    report = await runner.run("warmed", 1, "serving_default", [floats("seconds", 0.0)])
    assert values_of(report.frames[0]) == [0.0]


async def test_a_runner_does_not_say_that_it_left_while_it_loads_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.device.guardedrunner.RUNNER", "verification.chaos.rig.toyrunner")
    rolling = tmp_path / "rolling"
    rolling.mkdir()
    (rolling / "wait").touch()
    house = House(tmp_path)
    async with asyncio.timeout(LIMIT_S):
        await house.entered.wait()
        runner = house.guarded.runner
        await runner.load("half", 1, str(rolling))
        house.shown.clear()
        loading = asyncio.create_task(runner.load("rolling", 1, str(rolling), is_beside=True))
        await house.shown.wait()
        await runner.run("half", 1, "serving_default", [floats("x", 1.0)])
        house.guarded.order("leave")
        await house.left.wait()
    assert "left" not in house.verbs, "it is ended for not leaving in time"
    with pytest.raises(RunnerCrashed):
        await loading
    await house.close()


async def test_every_use_of_the_device_is_in_the_interval_log(house: House, runner: RunnerLink) -> None:
    await runner.load("half", 1, str(models.half_plus_two()))
    before = len(intervals.read(house.log))
    await runner.run("half", 1, "serving_default", [floats("x", 1.0)])
    (use,) = intervals.read(house.log)[before:]
    assert (use.kind, use.pid, use.token) == ("use", runner.pid, house.token)
    assert use.t_out > use.t_in
    assert intervals.violations(intervals.read(house.log)) == []


async def test_second_signal_of_death_reaches_a_busy_runner(house: House, runner: RunnerLink) -> None:
    await runner.load("slow", 1, str(models.slow()))
    running = asyncio.create_task(runner.run("slow", 1, "serving_default", [floats("seconds", 60.0)]))
    await asyncio.sleep(0)
    os.kill(runner.pid, signal.SIGSEGV)
    with pytest.raises(RunnerCrashed):
        await running
    async with asyncio.timeout(LIMIT_S):
        await runner.restart()


async def inspected(path: Path) -> savedmodel.Inspection:
    """What the command says. Raises :class:`InvalidRequest` with its reason."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "workers.inspect",
        str(path),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode != 0:
        raise InvalidRequest(err.decode().strip())
    return msgspec.json.decode(out, type=savedmodel.Inspection)


async def test_inspection_names_signatures_and_ops() -> None:
    found = await inspected(models.mirror())
    signature = found.signatures["serving_default"]
    assert signature.inputs["x_bfloat16"].dtype == "bfloat16"
    assert signature.inputs["x_string"].shape == (-1, 2)
    assert signature.inputs["x_string"].tensor == "serving_default_x_string:0"
    assert signature.method == "tensorflow/serving/predict"
    initializer = found.signatures["__saved_model_init_op"].outputs["__saved_model_init_op"]
    assert (initializer.tensor, initializer.shape) == ("NoOp", None)
    assert "Identity" in found.ops
    assert len(found.digest) == 64
    assert "Abort" in (await inspected(models.picky())).ops
    assert (await inspected(models.shout())).signatures["serving_default"].outputs.keys() == {"loud", "size"}


async def test_inspection_of_rubbish_says_why(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(os.urandom(200))
    with pytest.raises(InvalidRequest):
        await inspected(tmp_path)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        await inspected(tmp_path / "none")


async def test_inspect_command_prints_json() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers.inspect", str(models.half_plus_two()), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    found = msgspec.json.decode(out)
    assert set(found) == {"signatures", "ops", "verdict", "size_bytes", "digest", "rules"}


async def test_many_graphs_are_inspected_in_one_process_and_one_that_ends_it_costs_itself_alone(tmp_path: Path) -> None:
    for name, model in {"a": models.half_plus_two(), "d": models.picky(), "e": models.shout()}.items():
        (tmp_path / name).mkdir()
        shutil.copy(model / "saved_model.pb", tmp_path / name)
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / "saved_model.pb").write_bytes(os.urandom(200))
    os.mkfifo(tmp_path / "c" / "saved_model.pb")
    configs = {"a": b"max_batch_size: 8", "b": b"max_batch_size: 4", "d": b"{" * 100_000, "e": bytes(100 << 20)}
    for name, text in configs.items():
        (tmp_path / name / "config.pbtxt").write_bytes(text)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers.inspect", "--graphs", str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with await asyncio.to_thread((tmp_path / "c" / "saved_model.pb").open, "wb"):  # it reads the third one now
        (child,) = (await asyncio.to_thread(children.read_text)).split()
        os.kill(int(child), signal.SIGKILL)
        out, _ = await process.communicate()
    found = [msgspec.json.decode(line, type=savedmodel.GraphFindings) for line in out.splitlines()]
    assert process.returncode == 0
    assert [(one.name, bool(one.error)) for one in found] == [
        ("a", False),
        ("b", True),
        ("c", True),
        ("d", False),
        ("e", False),
    ]
    assert found[0].restores, "half_plus_two has variables"
    assert found[0].signatures == (await inspected(models.half_plus_two())).signatures
    assert found[3].verdict == (await inspected(models.picky())).verdict
    sizes = {one.name: one.config.max_batch_size for one in found if one.config is not None}
    assert sizes == {"a": 8, "b": 4}
    refused = {one.name: one.config_error for one in found if one.config_error}
    assert refused == {"d": "Line 1: Expected identifier or number, got {.", "e": "It has more than 131072 bytes."}
