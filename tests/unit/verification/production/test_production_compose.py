"""What `make production` reads in docker-compose.yml and deploy/Dockerfile, and what it refuses to read."""

from pathlib import Path

import pytest

from signalbox.program.errors import Misconfigured
from verification.production import dockerfile, variants
from verification.production.compose import Compose, read, start_order
from verification.production.links import hosts, plan
from verification.production.options import COMPOSE_FILE

ROOT = Path(__file__).resolve().parents[4]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


@pytest.fixture(scope="module")
def declared() -> Compose:
    return read(ROOT / COMPOSE_FILE, {})


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "compose.yml"
    path.write_text(text)
    return path


def test_the_file_of_this_repository_is_understood_whole(declared: Compose) -> None:
    assert len(declared.services) == 16
    redis = declared.services["redis"]
    assert redis.command[-1].endswith('"$(cat /run/secrets/redis)"')
    assert redis.healthcheck is not None
    assert redis.healthcheck.argv[:2] == ("/bin/sh", "-c")
    assert declared.services["topology"].ends
    assert not declared.services["console"].ends


def test_services_of_profiles_are_left_out_as_compose_leaves_them_out(tmp_path: Path) -> None:
    text = "services: {a: {image: redis}, b: {image: redis, profiles: [observe]}}"
    assert set(read(written(tmp_path, text), {}).services) == {"a"}


@pytest.mark.parametrize(
    "text",
    [
        "services: {a: {image: redis, privileged: true}}",
        "services: {a: {image: redis, healthcheck: {test: [CMD, true], start_period: 3s}}}",
        "services: {a: {image: redis, depends_on: {b: {condition: service_lucky}}}}",
        "services: {a: {image: redis, security_opt: [seccomp:unconfined]}}",
        "services: {}\nconfigs: {}",
        "services: {a: {image: redis",
    ],
)
def test_a_key_that_is_not_known_here_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Misconfigured, match=r"compose\.yml"):
        read(written(tmp_path, text), {})


def test_a_variable_of_the_host_needs_a_default_and_a_doubled_sign_is_one(tmp_path: Path) -> None:
    def hostname(text: str) -> str:
        file = written(tmp_path, f'services: {{a: {{image: redis, hostname: "{text}"}}}}')
        return read(file, {"HOST": "here", "EMPTY": ""}).services["a"].hostname

    assert hostname("$$HOST $${HOST:-x}") == "$HOST ${HOST:-x}"
    assert hostname("${HOST:-there}-1") == "here-1"
    assert hostname("${EMPTY:-there}${MISSING:-}") == "there"
    for text in ("$HOST", "${HOST}", "${HOST-there}", "${HOST:?must be set}", "${HOST:-${OTHER:-x}}"):
        with pytest.raises(Misconfigured, match="without a default"):
            hostname(text)


@pytest.mark.parametrize("used", ["networks: [n]", "secrets: [n]", 'volumes: ["n:/n"]'])
def test_a_name_that_is_declared_nowhere_is_refused(tmp_path: Path, used: str) -> None:
    with pytest.raises(Misconfigured, match=r"there is no \w+ n"):
        read(written(tmp_path, f"services: {{a: {{image: redis, {used}}}}}"), {})


def test_services_start_after_those_they_depend_on(declared: Compose) -> None:
    order = start_order(declared.services)
    for name, service in declared.services.items():
        for other in service.depends_on:
            assert order.index(other) < order.index(name)


def names(declared: Compose, service: str) -> dict[str, set[str]]:
    """Names that a service knows, with their addresses."""
    subnets = {name: f"10.0.{n}" for n, name in enumerate(declared.networks)}
    found: dict[str, set[str]] = {}
    for line in hosts(declared, plan(declared, subnets, "x"), service).splitlines():
        address, *each = line.split()
        for name in each:
            found.setdefault(name, set()).add(address)
    return found


def test_a_service_knows_those_on_its_networks_and_nobody_else(declared: Compose) -> None:
    assert set(names(declared, "redis")) == {*("localhost", "redis", "tyk", "plugin", "plugin-1", "plugin-2")}
    assert set(names(declared, "postgres")) == {
        *("localhost", "postgres", "bootstrap", "console", "controller", "projector")
    }
    assert "tyk" not in names(declared, "worker-1")


def test_whoever_knows_a_service_knows_it_on_one_network(declared: Compose) -> None:
    """A name with two ways behind it takes the one, and the other is there for nothing."""
    called = {
        "tyk": ("redis", "plugin-1", "plugin-2"),
        "plugin-1": ("nats-1",),
        "worker-1": ("nats-1",),
        "console": ("nats-1", "postgres"),
        "nats-1": ("nats-2", "nats-3"),
    }
    for one, others in called.items():
        for other in others:
            shared = set(declared.services[one].on) & set(declared.services[other].on)
            assert len(shared) == 1, f"{one} calls {other}"


@pytest.mark.parametrize("count", [2, 4])
def test_each_device_has_a_worker_with_a_user_of_its_own(declared: Compose, count: int) -> None:
    more = variants.with_devices(declared, count)
    assert not more.problems()
    workers = [f"worker-{n}" for n in range(1, count + 1)]
    assert sorted(variants.workers(more)) == workers
    for number, name in enumerate(workers):
        service = more.services[name]
        assert service.environment["SIGNALBOX_WORKER_DEVICE"] == f"cpu:{number}"
        assert service.environment["SIGNALBOX_WORKER_ID"] == name
        assert service.environment["SIGNALBOX_NATS_USER"] == name
        assert f"nats_{name}" in service.secrets
    assert variants.with_devices(declared, 1) is declared


@pytest.mark.parametrize("target", ["gateway", "worker", "console"])
def test_an_image_of_ours_is_read_from_its_dockerfile(target: str) -> None:
    image = dockerfile.read(DOCKERFILE, target)
    assert (image.user, image.uid, image.workdir) == ("signalbox", 10001, "/app")
    assert image.environment["PYTHONPATH"] == "/app"
    assert ("signalbox", "/app/signalbox") in image.copied
    assert image.command[:2] == ("python", "-m")
    other = {"gateway": "console", "worker": "console", "console": "gateway_plugin"}[target]
    assert other not in dict(image.copied)


def test_workers_and_nobody_else_write_down_who_was_in_a_device(declared: Compose) -> None:
    log = "SIGNALBOX_WORKER_INTERVAL_LOG"
    asked = variants.with_intervals(declared).services
    writing = {name: each.environment[log] for name, each in asked.items() if log in each.environment}
    assert sorted(writing) == variants.workers(declared)
    (path,) = set(writing.values())
    assert f"locks:{Path(str(path)).parent}" in asked["worker-1"].volumes
    assert not any(log in each.environment for each in declared.services.values())
