"""docker-compose.yml says nothing that our code, our files or Tyk's configuration does not have."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from signalbox.ops.natsserver import MAX_PAYLOAD_BYTES, accounts, password_variable
from signalbox.ops.ports import free_port
from signalbox.program import health, metrics, settings
from signalbox.program.settings import declared
from tests.rigs.containers import run, taken, untaken
from verification.production.compose import document

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = document(FILE.read_bytes(), {})
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: s for name, s in SERVICES.items() if "build" in s}
TYK: dict[str, Any] = json.loads((ROOT / "tyk" / "tyk.conf").read_text())
WORKERS = ("worker-1", "worker-2")
USERS = (
    *("gateway", "console", "outbound", "host", "admin"),
    *("gateway-queues", "outbound-queues", "admin-queues"),
    *WORKERS,
)
API: dict[str, Any] = json.loads((ROOT / "tyk" / "apps" / "signalbox.json").read_text())
HELLO: dict[str, Any] = json.loads((ROOT / "tyk" / "apps" / "hello.json").read_text())
APIS: list[dict[str, Any]] = [json.loads(path.read_text()) for path in (ROOT / "tyk" / "apps").glob("*.json")]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What make_secrets.py makes, and the headers of a collector, for which it makes an empty file."""
    folder = tmp_path_factory.mktemp("deploy") / "secrets"
    (folder.parent / "signalbox").mkdir()  # stands for /var/lib/signalbox, which the image makes
    script = ROOT / "deploy" / "make_secrets.py"
    subprocess.run([sys.executable, script, "--folder", folder], check=True, timeout=60)
    assert not (folder / "traces_headers").read_text()
    (folder / "traces_headers").write_text(f"authorization=Bearer%20{'a1' * 32}")
    return folder


@pytest.mark.compose
def test_docker_compose_accepts_the_file(secrets: Path, tmp_path: Path) -> None:
    compose = shutil.which("docker-compose")
    if compose is None:
        pytest.skip("docker-compose is not installed")
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)
    shutil.copytree(secrets, tmp_path / "deploy" / "secrets")
    command = [compose, "--profile", "observe", "config"]
    asked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert asked.returncode == 0, asked.stderr
    assert set(yaml.safe_load(asked.stdout)["services"]) == set(SERVICES)


def test_everything_a_deployment_has_is_there() -> None:
    assert {
        "tyk",
        "redis",
        "nats-1",
        "nats-2",
        "nats-3",
        "postgres",
        "plugin-1",
        "plugin-2",
        "worker-1",
        "worker-2",
        "console",
        "projector",
        "controller",
        "outbound",
        "bootstrap",
        "topology",
        "prometheus",
        "grafana",
    } == set(SERVICES)


def test_tyk_gives_up_a_plugin_that_went_without_a_word_within_ten_seconds() -> None:
    """The kernel sends again after 0.2 s, then twice as late each time; it gives up after so many."""
    tries: int = SERVICES["tyk"]["sysctls"]["net.ipv4.tcp_retries2"]
    assert 2 < sum(0.2 * 2**n for n in range(tries + 1)) < 10
    dials: int = SERVICES["tyk"]["sysctls"]["net.ipv4.tcp_syn_retries"]
    assert 2 < sum(2**n for n in range(dials + 1)) < 10


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_image_is_pinned_to_one_version(name: str) -> None:
    assert re.search(r":v?\d+\.\d+(\.\d+)?(-[a-z]+)?\Z", SERVICES[name]["image"])


def test_no_program_that_stays_up_can_fill_the_disk_with_its_log() -> None:
    staying = [one for one in SERVICES.values() if one.get("restart") == "unless-stopped"]
    assert len(staying) >= 12
    for one in staying:
        options = one["logging"]["options"]
        assert (one["logging"]["driver"], set(options)) == ("json-file", {"max-size", "max-file"})


@pytest.mark.parametrize("name", OURS)
def test_our_programs_write_to_their_tmp_and_to_volumes_alone(name: str) -> None:
    assert SERVICES[name]["read_only"] is True
    assert SERVICES[name]["tmpfs"] == ["/tmp"]  # noqa: S108  the container's own


def test_only_what_people_or_repositories_need_reaches_outside_and_no_credentials_are_written_there() -> None:
    outside = {name for name, network in COMPOSE["networks"].items() if not (network or {}).get("internal")}
    reach = {name: set(service["networks"]) & outside for name, service in SERVICES.items()}
    assert {name for name in reach if "stores" in reach[name]} == {"controller", *WORKERS}
    assert {name for name in reach if "receivers" in reach[name]} == {"outbound"}
    assert {name for name in reach if "front" in reach[name]} == {"tyk", "console", "grafana"}, "it uploads"
    for name in ("console", "controller", *WORKERS):
        program = "WORKER" if name in WORKERS else "CONSOLE"
        folder = SERVICES[name]["environment"][f"SIGNALBOX_{program}_REPOSITORY_CREDENTIALS"]
        assert f"./deploy/secrets/repositories:{folder}:ro" in SERVICES[name]["volumes"]


def test_tyk_is_new_enough_for_error_overrides() -> None:
    version = SERVICES["tyk"]["image"].rpartition(":v")[2]
    assert tuple(map(int, version.split("."))) >= (5, 13, 0)


def test_what_a_host_may_set_reaches_every_program_and_is_else_the_programs_default() -> None:
    from console.config import PREFIX, ConsoleSettings
    from gateway_plugin.outbound.settings import PREFIX as OUTBOUND
    from gateway_plugin.outbound.settings import OutboundSettings

    variables = set(re.findall(r"\$\{(\w+):-", FILE.read_text()))
    assert {"SIGNALBOX_WEBHOOK_NETWORKS", "SIGNALBOX_WEBHOOK_PLAIN", "SIGNALBOX_OUTBOUND_TRACES_URL"} < variables
    given: dict[str, Any] = document(FILE.read_bytes(), dict.fromkeys(variables, "7"))["services"]
    defaults = {s.name: s.default for s in (*declared(ConsoleSettings, PREFIX), *declared(OutboundSettings, OUTBOUND))}
    defaults |= {"SIGNALBOX_METRICS_PORT": 9100, "SIGNALBOX_METRICS_HOST": "0.0.0.0"}  # on, for the other containers
    for name, service in OURS.items():
        reached = {key for key in variables if given[name]["environment"].get(key) == "7"}
        assert {key for key in variables if not re.match("SIGNALBOX_(CONSOLE|OUTBOUND)_", key)} <= reached, name
        for key in reached:
            default = defaults[key]
            wanted = settings.shown(default).removesuffix(".0" if isinstance(default, float) else "")
            assert service["environment"][key] == wanted, key
    assert variables == {key for s in given.values() for key, v in s.get("environment", {}).items() if v == "7"}


def different() -> list[str]:
    """Our services, of several that are the same only the first."""
    first: dict[str, str] = {}
    for name in sorted(OURS):
        first.setdefault(json.dumps([OURS[name]["command"], OURS[name]["environment"]]), name)
    return sorted(first.values())


@pytest.mark.parametrize("name", different())
def test_command_exists_and_takes_every_variable(name: str, secrets: Path, tmp_path: Path) -> None:
    environment = {key: local(str(value), secrets) for key, value in OURS[name]["environment"].items()}
    shown = taken(OURS[name]["command"], environment, tmp_path)
    assert not untaken(environment, shown)
    for secret in secrets.iterdir():
        if not secret.suffix and secret.is_file():
            assert secret.read_text() not in shown


def local(value: str, secrets: Path) -> str:
    """A value of compose with the container's folders replaced by real ones."""
    return value.replace("/run/secrets", str(secrets)).replace("/var/lib", str(secrets.parent))


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_secrets_used_are_declared_given_and_made(name: str, secrets: Path) -> None:
    service = SERVICES[name]
    used = set(re.findall(r"/run/secrets/([\w-]+)", json.dumps(service)))
    assert used == set(service.get("secrets", []))
    for secret in used:
        assert COMPOSE["secrets"][secret] == {"file": f"deploy/secrets/{secret}"}
        assert len((secrets / secret).read_text()) > 40
    if "env_file" in service:
        assert (secrets / Path(service["env_file"]).name).exists()


def test_secrets_are_kept_when_the_script_runs_again(secrets: Path) -> None:
    before = {path: path.read_text() for path in secrets.rglob("*") if path.is_file()}
    script = ROOT / "deploy" / "make_secrets.py"
    subprocess.run([sys.executable, script, "--folder", secrets], check=True, timeout=60)
    assert {path: path.read_text() for path in secrets.rglob("*") if path.is_file()} == before
    assert secrets.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_mounts_lead_to_files_of_ours_or_declared_volumes(name: str, secrets: Path) -> None:
    for mount in SERVICES[name].get("volumes", []):
        source = mount.split(":")[0]
        if source.startswith("./deploy/secrets/"):
            assert (secrets / source.removeprefix("./deploy/secrets/")).is_dir()
        elif source.startswith("./"):
            assert (ROOT / source).exists(), mount
            assert mount.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


def test_folders_the_programs_use_are_mounted_and_made_by_the_image() -> None:
    for name, service in OURS.items():
        mounted = {mount.split(":")[1] for mount in service.get("volumes", [])}
        named = {str(value) for value in service["environment"].values() if str(value).startswith("/var/lib/")}
        assert named <= mounted, name
        for folder in mounted:
            assert folder in DOCKERFILE


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_dependencies_can_become_true(name: str) -> None:
    for other, needed in SERVICES[name].get("depends_on", {}).items():
        condition = needed["condition"]
        if condition == "service_healthy":
            assert "healthcheck" in SERVICES[other], other
        else:
            assert condition == "service_completed_successfully"
            assert SERVICES[other]["restart"] in {"no", "on-failure"}


@pytest.mark.parametrize("name", sorted(OURS))
def test_build_target_is_in_the_dockerfile(name: str) -> None:
    build = OURS[name]["build"]
    assert (ROOT / build["dockerfile"]).exists()
    assert re.search(rf"^FROM base AS {build['target']}$", DOCKERFILE, re.MULTILINE)


def test_images_copy_what_exists_and_is_not_ignored() -> None:
    kept = [
        line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    ]
    for copied in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE):
        given, *made = copied.split()
        assert (ROOT / given).exists()
        assert given in kept or given.split("/")[0] in kept
        assert all(re.fullmatch(r"build/sbom/[\w-]+\.cdx\.jso\[n\]", each) for each in made)
    assert "build/sbom/*.cdx.json" in kept


def test_ports_are_those_the_programs_listen_on() -> None:
    assert SERVICES["tyk"]["ports"] == [f"8080:{API['listen_port']}"]
    assert {api["listen_port"] for api in APIS} == {API["listen_port"]}
    port = SERVICES["console"]["environment"]["SIGNALBOX_CONSOLE_LISTEN"].rpartition(":")[2]
    assert SERVICES["console"]["ports"] == [f"127.0.0.1:8000:{port}"]
    assert SERVICES["grafana"]["ports"] == ["127.0.0.1:3000:3000"]
    assert {name for name, s in SERVICES.items() if "ports" in s} == {"tyk", "console", "grafana"}
    ports = {API["listen_port"], TYK["listen_port"], TYK["control_api_port"]}
    assert len(ports) == 3, "Tyk opens its own port before it has loaded the APIs"


def test_tyk_finds_both_plugins_by_one_name_and_redis() -> None:
    options = TYK["coprocess_options"]
    address = re.fullmatch(r"dns:///(\w+):(\d+)", options["coprocess_grpc_server"])
    assert address is not None
    assert options["grpc_round_robin_load_balancing"] is True
    for name in ("plugin-1", "plugin-2"):
        service = SERVICES[name]
        assert address[1] in service["networks"]["gateway"]["aliases"]
        assert service["environment"]["SIGNALBOX_GATEWAY_LISTEN"].endswith(f":{address[2]}")
        assert float(service["environment"]["SIGNALBOX_GATEWAY_MAX_CONNECTION_AGE_S"]) > 0
        listened = {service["environment"][f"SIGNALBOX_GATEWAY_{n}_LISTEN"] for n in ("GRPC", "UPSTREAM")}
        targets = [api["proxy"]["target_url"].rpartition("//")[2] for api in APIS if api not in (HELLO, API)]
        assert {f"{address[1]}:{each.rpartition(':')[2]}" for each in listened} == set(targets)
    assert TYK["storage"]["host"] in SERVICES
    assert "gateway" in SERVICES["tyk"]["networks"]
    assert SERVICES["redis"]["networks"] == ["gateway"]


def test_variables_for_tyk_name_fields_of_its_configuration(secrets: Path) -> None:
    given = set(SERVICES["tyk"]["environment"])
    given |= {line.partition("=")[0] for line in (secrets / "tyk.env").read_text().splitlines()}
    fields = {"TYK_GW_" + name.replace("_", "").upper() for name in TYK}
    assert given - {"TYK_GW_STORAGE_PASSWORD", "GOMEMLIMIT"} <= fields


def test_messages_to_the_plugin_have_room_for_the_largest_body() -> None:
    from gateway_plugin.settings import GatewaySettings

    largest = TYK["http_server_options"]["max_request_body_size"]
    defaults = {f.name: f.default for f in _fields(GatewaySettings)}
    assert defaults["max_body_bytes"] < defaults["max_upstream_bytes"] < largest
    for name in ("grpc_recv_max_size", "grpc_send_max_size"):
        assert TYK["coprocess_options"][name] == defaults["max_message_bytes"] > largest + 1_048_576
    assert defaults["max_wait_s"] < TYK["http_server_options"]["write_timeout"]


def _fields(cls: Any) -> Any:
    from msgspec.structs import fields

    return fields(cls)


def test_health_checks_ask_for_what_exists() -> None:
    from django.urls import resolve

    check = SERVICES["console"]["healthcheck"]["test"][-1]
    path = re.search(r"127\.0\.0\.1:8000(/\w+)", check)
    assert path is not None
    assert resolve(path[1]).view_name == "health"
    plugin = SERVICES["plugin-1"]["healthcheck"]["test"]
    reported = run([sys.executable, *plugin[2:-1], "--help"], dict(os.environ), ROOT).stdout
    assert plugin[-1] in reported


def test_programs_that_nobody_calls_are_asked_whether_they_are_ready(tmp_path: Path) -> None:
    asked = {name for name in OURS if "healthcheck.py" in json.dumps(SERVICES[name].get("healthcheck", {}))}
    assert asked == {*WORKERS, "projector", "controller", "outbound"}
    (tmp_path / "signalbox").symlink_to(ROOT / "signalbox")  # as the image has it in its working folder
    assert re.search(r"^WORKDIR /app$", DOCKERFILE, re.MULTILINE)
    targets = re.findall(r"^FROM base AS ", DOCKERFILE, re.MULTILINE)
    assert len(re.findall(r"^COPY signalbox signalbox$", DOCKERFILE, re.MULTILINE)) == len(targets) == 4
    (check,) = {tuple(SERVICES[name]["healthcheck"]["test"]) for name in asked}
    assert check[:2] == ("CMD", "python")
    for name in asked:
        assert SERVICES[name]["environment"]["SIGNALBOX_METRICS_PORT"] == "9100"

    def status(port: int) -> tuple[int, str]:
        env = {"SIGNALBOX_METRICS_PORT": str(port), "SIGNALBOX_METRICS_HOST": "0.0.0.0"}
        command = [sys.executable, *check[2:]]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert status(0)[0] == 0, "nobody can be asked"
    gone = status(free_port())
    assert (gone[0], "no answer" in gone[1]) == (1, True)
    health.READY.clear()  # of tests before this one
    port = metrics.serve(free_port(), host="0.0.0.0")
    assert status(port) == (1, f"{health.NOT_YET}\n")
    source = Faulty()
    health.READY.add(source)
    assert status(port) == (1, "broken\n")
    source.is_well = True
    assert status(port) == (0, "ready\n")
    health.READY.remove(source)


class Faulty:
    """What a program depends on."""

    is_well = False

    def faults(self) -> list[str]:
        return [] if self.is_well else ["broken"]


@pytest.mark.parametrize("name", ["nats-1", "nats-2", "nats-3"])
def test_each_nats_node_has_its_name_store_and_passwords(name: str, secrets: Path) -> None:
    service = SERVICES[name]
    conf = (ROOT / "deploy" / "nats" / "nats.conf").read_text()
    assert service["hostname"] == name
    assert f"{name}:/data" in service["volumes"]
    assert f"nats-route://{name}:6222" in conf
    assert f"./deploy/secrets/tls/{name}:/run/tls:ro" in service["volumes"]
    files = set(re.findall(r'"/run/tls/([^"]+)"', conf))
    assert files == {"node.pem", "ca.pem"}
    assert files <= {path.name for path in (secrets / "tls" / name).iterdir()}
    assert 'store_dir: "/data"' in conf
    users = (ROOT / "deploy" / "nats" / "users.conf").read_text()
    wanted = set(re.findall(r"\$(NATS_\w+_PASSWORD)", users))
    given = {line.partition("=")[0] for line in (secrets / "nats.env").read_text().splitlines()}
    assert wanted == given == {password_variable(user) for user in USERS}


def test_nats_users_are_the_roles_as_declared() -> None:
    bound: dict[str, list[str]] = {worker: [] for worker in WORKERS}
    wanted = accounts({user: f"${password_variable(user)}" for user in USERS}, bound)
    assert (ROOT / "deploy" / "nats" / "users.conf").read_text() == wanted + "\n", (
        "roles changed: signalbox nats-users --worker worker-1 --worker worker-2 > deploy/nats/users.conf"
    )


def test_nobody_but_the_script_sees_the_authority_s_key() -> None:
    mounted = [mount for s in SERVICES.values() for mount in s.get("volumes", [])]
    given = [secret["file"] for secret in COMPOSE["secrets"].values()]
    assert not [one for one in mounted + given if "secrets/ca" in one or "secrets:" in one]


def test_nats_is_as_durable_as_promised() -> None:
    conf = (ROOT / "deploy" / "nats" / "nats.conf").read_text()
    assert re.search(r"^  sync_interval: always$", conf, re.MULTILINE)
    assert f"max_payload: {MAX_PAYLOAD_BYTES}\n" in conf
    command = SERVICES["topology"]["command"]
    assert command[-2:] == ["--replicas", "3"]


@pytest.mark.parametrize("name", sorted(OURS))
def test_each_program_connects_as_the_user_of_its_role(name: str) -> None:
    environment = OURS[name]["environment"]
    user = environment["SIGNALBOX_NATS_USER"]
    assert user in USERS
    if user in WORKERS:
        assert user == environment["SIGNALBOX_WORKER_ID"]
    assert environment["SIGNALBOX_NATS_PASSWORD_FILE"] == f"/run/secrets/nats_{user}"
    servers = environment["SIGNALBOX_NATS_URL"].split(",")
    assert servers == [f"tls://nats-{n}:4222" for n in (1, 2, 3)]
    assert environment["SIGNALBOX_NATS_CA_FILE"] == "/run/secrets/tls_ca"
    assert "bus" in OURS[name]["networks"]


def test_tyk_shows_the_plugins_the_secret_they_ask_for(secrets: Path) -> None:
    mounted = [m.split(":")[0] for m in SERVICES["tyk"]["volumes"] if "apps" in m]
    assert mounted == ["./deploy/secrets/tyk_apps"]
    made = secrets / "tyk_apps"
    assert {path.name for path in made.iterdir()} == {path.name for path in (ROOT / "tyk" / "apps").iterdir()}
    definition = json.loads((made / "signalbox.json").read_text())
    assert definition.pop("config_data") == {"secret": (secrets / "plugin_secret").read_text()}
    assert definition == API
    for name in ("plugin-1", "plugin-2"):
        environment = SERVICES[name]["environment"]
        assert environment["SIGNALBOX_GATEWAY_SECRET_FILE"] == "/run/secrets/plugin_secret"


def test_gateway_and_console_share_the_pepper() -> None:
    for name in ("plugin-1", "plugin-2", "console", "controller", "projector", "bootstrap"):
        assert SERVICES[name]["environment"]["SIGNALBOX_KEY_PEPPER_FILE"] == "/run/secrets/key_pepper"


def test_workers_of_the_host_share_one_lock_folder_and_differ_in_name() -> None:
    first, second = (SERVICES[name]["environment"] for name in ("worker-1", "worker-2"))
    assert first["SIGNALBOX_WORKER_LOCK_DIR"] == second["SIGNALBOX_WORKER_LOCK_DIR"]
    assert first["SIGNALBOX_WORKER_ID"] != second["SIGNALBOX_WORKER_ID"]


def test_time_to_stop_covers_what_the_programs_ask_for() -> None:
    from gateway_plugin.settings import GatewaySettings
    from workers.settings import WorkerSettings

    grace = {
        name: float(s["stop_grace_period"].rstrip("s")) for name, s in SERVICES.items() if "stop_grace_period" in s
    }
    gateway = {f.name: f.default for f in _fields(GatewaySettings)}
    worker = {f.name: f.default for f in _fields(WorkerSettings)}
    assert grace["plugin-1"] > gateway["drain_s"]
    assert grace["worker-1"] > worker["drain_s"]
    assert grace["tyk"] > TYK["graceful_shutdown_timeout_duration"]


def test_api_definition_names_the_hooks_the_plugin_has() -> None:
    from gateway_plugin.hooks.dispatcher import AUTH, POST

    hooks = API["custom_middleware"]
    assert hooks["auth_check"]["name"] == AUTH
    assert [hook["name"] for hook in hooks["post"]] == [POST]
