"""The images of deploy/Dockerfile: what was built is what would be, and what is not built here has what it needs."""

import importlib.util
import re
from pathlib import Path

import pytest

from signalbox import __version__
from verification.images import record
from verification.images.record import BUILT, DOCKERFILE, ROOT
from verification.production import dockerfile

TEXT = (ROOT / DOCKERFILE).read_text("utf-8")
TARGETS = (*BUILT, "worker-cuda")


def pins(lock: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text("utf-8")
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def stage(target: str) -> str:
    return TEXT.partition(f"FROM base AS {target}\n")[2].partition("\nFROM ")[0]


@pytest.mark.parametrize("target", BUILT)
def test_what_an_image_is_made_of_was_built_and_started(target: str) -> None:
    built = record.read().images[target]
    assert built.inputs == record.inputs(target), (
        f"what the image {target} is made of has changed: run `make images` and commit {record.RECORD}"
    )
    assert built.packages == len(pins(target))
    assert built.mib > record.read().base_mib


def test_a_change_of_any_input_is_noticed(tmp_path: Path) -> None:
    for name in (DOCKERFILE, "deploy/images/install.sh", "requirements/gateway.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    assert record.inputs("gateway", tmp_path) == record.inputs("gateway")
    for name in (DOCKERFILE, "deploy/images/install.sh", "requirements/gateway.txt"):
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(before + b"\n")
        assert record.inputs("gateway", tmp_path) != record.inputs("gateway"), name
        (tmp_path / name).write_bytes(before)


@pytest.mark.parametrize("target", TARGETS)
def test_each_step_of_a_target_has_what_it_names(target: str) -> None:
    made = dockerfile.read(ROOT / DOCKERFILE, target)
    assert (made.uid, made.workdir) == (10001, "/app")
    copied = dict(made.copied)
    for source, there in copied.items():
        assert (ROOT / source).exists()
        assert there == f"/app/{source}"
    python, dash_m, module, *_ = made.command
    assert (python, dash_m) == ("python", "-m")
    assert importlib.util.find_spec(f"{module}.__main__") is not None
    assert module in copied
    assert "signalbox" in copied
    (compiled,) = re.findall(r"\nRUN python -m compileall -q --invalidation-mode unchecked-hash (.*)\n", stage(target))
    assert set(compiled.split()) == set(copied) - {"tyk"}


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_installs_its_own_lock_with_hashes_and_leaves_nothing_else(target: str) -> None:
    text = stage(target)
    assert f"COPY requirements/{target}.txt /usr/share/doc/signalbox/\n" in text
    assert f"sh /usr/share/doc/signalbox/install.sh {target}\n" in text
    assert f"COPY requirements/{target}.txt build/sbom/{target}.cdx.jso[n] /usr/share/doc/signalbox/\n" in text
    assert f"org.signalbox.sbom=/usr/share/doc/signalbox/{target}.cdx.json\n" in text
    assert f"org.opencontainers.image.title=signalbox-{target} " in text
    assert f"ARG VERSION={__version__}\n" in text
    assert "type=cache,target=/root/.cache/pip" in text
    install = (ROOT / "deploy/images/install.sh").read_text("utf-8")
    assert "--require-hashes --only-binary :all:" in install
    assert not re.search(r"apt-get|gcc|build-essential", TEXT + install)
    assert pins(target)


def test_the_programs_user_is_given_in_numbers() -> None:
    assert re.findall(r"^USER (.*)$", TEXT, re.MULTILINE) == ["10001:10001"] * len(TARGETS)


def test_the_worker_with_cuda_is_the_worker_with_another_tensorflow() -> None:
    cpu, cuda = pins("worker"), pins("worker-cuda")
    assert cuda["tensorflow"] == cpu.pop("tensorflow-cpu"), "run: make lock"
    assert cpu.items() <= cuda.items()
    nvidia = {name for name in cuda if name.startswith("nvidia-")}
    assert {f"nvidia-{part}-cu12" for part in ("cudnn", "cublas", "cuda-runtime", "cuda-nvcc", "nccl")} <= nvidia
    driver = re.compile("(#.*\n)?ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility\n")
    assert driver.sub("", stage("worker-cuda").replace("worker-cuda", "worker")) == stage("worker")
