"""Models of Triton's in a repository: what becomes of their config.pbtxt, at first and when it changes."""

from pathlib import Path

import pytest

from console.accounts.rights import Actor
from console.api.repositories import RepositoryDetailOut
from console.audit.models import AuditEntry
from console.catalog import lookup, modelsettings, triton
from console.catalog.models import ServedModel
from console.config import ConsoleSettings
from console.outbox.models import OutboxEntry
from console.repositories import services as repositories
from signalbox.bus.client import Bus
from signalbox.wire import modeldocs
from signalbox.wire.warmups import WarmUp, WarmUpInput
from tests.console.conftest import in_thread
from tests.console.noticing import Rig, document, lay, served
from tests.rigs.models import half_plus_two_v1, weigh

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A folder with the versions 1 and 2 of a model ``half``."""
    folder = tmp_path / "zoo"
    lay(folder, Path("half/1"), half_plus_two_v1())
    lay(folder, Path("half/2"))
    return folder


@pytest.fixture
def rig(bus: Bus, console: ConsoleSettings, zoo: Path) -> Rig:
    """A repository in a folder."""
    return Rig(bus, console, f"file://{zoo}")


def lay_triton(zoo: Path, name: str = "weigh", config: str = "", number: int = 1) -> Path:
    """A model as Triton has it; the folder of its versions. config: more lines of its ``config.pbtxt``."""
    lay(zoo, Path(f"{name}/{number}/model.savedmodel"), weigh())
    (zoo / name / "config.pbtxt").write_text(f'platform: "tensorflow_savedmodel"\nmax_batch_size: 16\n{config}')
    return zoo / name


BATCHED = """
input { name: "x" data_type: TYPE_FP32 dims: [ 8 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 2500 }
instance_group { count: 2 }
"""


async def test_a_model_of_triton_s_gets_the_settings_of_its_config_and_says_what_is_left(rig: Rig, zoo: Path) -> None:
    await in_thread(lay_triton, zoo, "weigh", BATCHED)
    assert (await rig.listed(defaults={"max_batch_size": 4, "max_delivery": 2})).refused == {}
    batching = (await in_thread(document, "weigh")).batching
    assert batching == modeldocs.Batching(max_size=16, max_delay_ms=2.5, rows_independent=True)
    model = await in_thread(lookup.find, "weigh")
    assert model.max_delivery == 2
    state = await in_thread(triton.state_of, model)
    assert state is not None
    assert state.fields["max_batch_size"] == "max_batch_size is 16"
    assert state.left == ["dynamic_batching.preferred_batch_size", "instance_group"]
    assert state.differences == [
        'The output "y" is float32 [-1, -1] in the file, and float32 [-1, 3] in the signature.'
    ]
    row = await in_thread(repositories.find, "zoo")
    assert await in_thread(lambda: RepositoryDetailOut(row).data["left"]) == {"weigh": state.left}


async def test_a_config_that_changes_later_changes_no_setting_and_is_said(rig: Rig, zoo: Path, admin: Actor) -> None:
    folder = await in_thread(lay_triton, zoo)
    await rig.listed()
    await in_thread(modelsettings.change_settings, admin, "weigh", {"max_batch_size": 5})
    published = await in_thread(OutboxEntry.objects.count)

    async def left(text: bytes | None) -> list[str]:
        """What the model's page names once the file is so."""
        config = folder / "config.pbtxt"
        config.write_bytes(text) if text is not None else config.unlink()
        listing = await rig.listed()
        state = await in_thread(lambda: triton.state_of(lookup.find("weigh")))
        return [*listing.refused, *(state.left if state is not None else ["no file"])]

    assert await left(b"max_batch_size: 7") == ["max_batch_size"]
    assert await left(b"max_batch_size: 5") == []
    assert await left(b"max_batch_size: no") == ["weigh/config.pbtxt"]
    state = await in_thread(lambda: triton.state_of(lookup.find("weigh")))
    assert state is not None
    assert state.error == "Line 1: Couldn't parse integer: no"
    assert await left(b"max_batch_size: 6") == ["max_batch_size"]
    assert await left(None) == ["no file"]
    assert await in_thread(OutboxEntry.objects.count) == published, "nothing of it was published"
    assert (await in_thread(lookup.find, "weigh")).max_batch_size == 5


WARMED = """model_warmup { name: "zeros" batch_size: 4 inputs {
  key: "x" value { data_type: TYPE_FP32 dims: 8 zero_data: true } } }
model_warmup { name: "file" batch_size: 1 inputs {
  key: "x" value { data_type: TYPE_FP32 dims: 8 input_data_file: "x.bin" } } }
"""
"""One sample is run, and one is not."""


async def test_warm_ups_of_a_config_are_published_and_follow_it_when_it_changes(rig: Rig, zoo: Path) -> None:
    folder = await in_thread(lay_triton, zoo, "weigh", WARMED)
    assert (await rig.listed()).refused == {}
    zeros = WarmUp("zeros", {"x": WarmUpInput("float32", (4, 8))})
    assert (await in_thread(document, "weigh")).warm_ups == (zeros,)
    state = await in_thread(lambda: triton.state_of(lookup.find("weigh")))
    assert state is not None
    assert (state.left, state.differences) == (["model_warmup"], [])
    assert state.fields["model_warmup"] == (
        '1 sample is run after each load; not taken over: "file": its input "x" is neither zero_data nor random_data:'
        " no file is read"
    )
    (folder / "config.pbtxt").write_text(f"max_batch_size: 16\n{WARMED}".replace("batch_size: 4", "batch_size: 3"))
    await rig.listed()
    (changed,) = (await in_thread(document, "weigh")).warm_ups
    assert changed.inputs["x"].shape == (3, 8)
    entry = await in_thread(lambda: AuditEntry.objects.filter(reason="Its config.pbtxt has changed.").get())
    assert (entry.before, entry.after) == ({"warm_ups": ["zeros"]}, {"warm_ups": ["zeros"]})
    (folder / "config.pbtxt").unlink()
    await rig.listed()
    assert (await in_thread(document, "weigh")).warm_ups == ()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (b"x" * (129 << 10), "It has 132096 bytes; at most 131072 are read."),
        (b"\xff", "It is no UTF-8."),
        (b"a { " * 30_000, "It is nested too deeply."),
        (b"max_batch_size: {}", "Line 1: Couldn't parse integer: {"),
        (b"input {}\n" * 10_000, 'Version 1: The input "" is not in the signature, which has x.'),
        (b"input {}\n" * 100_000, "It has 900000 bytes; at most 131072 are read."),
        (b'platform: "onnxruntime_onnx"', 'Version 1: It is of the platform or backend "onnxruntime_onnx"'),
        (b'input { name: "z" }', 'Version 1: The input "z" is not in the signature, which has x.'),
    ],
)
async def test_a_bad_config_costs_its_model_alone_until_it_changes(
    rig: Rig, zoo: Path, config: bytes, why: str
) -> None:
    folder = await in_thread(lay_triton, zoo)
    (folder / "config.pbtxt").write_bytes(config)
    for _ in range(2):
        listing = await rig.listed()
        assert listing.refused.keys() == {"weigh/config.pbtxt"}
        assert listing.refused["weigh/config.pbtxt"].startswith(why)
    assert await in_thread(served) == [1, 2]
    assert not await in_thread(ServedModel.objects.filter(name="weigh").exists)
    (folder / "config.pbtxt").write_bytes(b"")
    assert (await rig.listed()).refused == {}
    assert await in_thread(served, "weigh") == [1]
