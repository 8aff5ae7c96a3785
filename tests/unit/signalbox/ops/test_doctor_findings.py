"""Each weak setting the doctor knows is found where it is, and a deployment without any is left alone."""

import json
import os
import re
import resource
import shutil
import stat
import string
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from msgspec.structs import fields

from console.config import ConsoleSettings
from gateway_plugin.settings import GatewaySettings
from signalbox.bus.client import Bus
from signalbox.ops import natsserver
from signalbox.ops.doctor import certificates, environment, host, main, natsconf, natsrules, tyk
from signalbox.ops.doctor.catalog import CATALOG, Finding, Severity, accept
from signalbox.ops.doctor.environment import Environment
from signalbox.program.errors import Misconfigured
from signalbox.program.filesystem import remote_kind
from signalbox.program.settings import Wire
from signalbox.wire.names import HOST_WORKERS, host_user
from signalbox.wire.roles import USERS, host_permissions, permissions, reader_permissions
from signalbox.wire.workerdocs import Device, Worker
from workers.settings import WorkerSettings

ROOT = Path(__file__).resolve().parents[4]
LONG = string.ascii_letters + string.digits
"""62 characters, so that nothing is too short."""


def good(program: str, folder: Path) -> dict[str, str]:
    """Variables of a program nothing is wrong with; secrets in files only their owner reads."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def secret(name: str) -> str:
        path = folder / name
        path.write_text(f"{name}-{LONG}")
        path.chmod(0o600)
        return str(path)

    env = {
        "SIGNALBOX_NATS_URL": "tls://nats.example:4222",
        "SIGNALBOX_NATS_USER": program,
        "SIGNALBOX_NATS_PASSWORD_FILE": secret("nats"),
    }
    if program in {"gateway", "console"}:
        env["SIGNALBOX_KEY_PEPPER_FILE"] = secret("pepper")
    if program == "gateway":
        env["SIGNALBOX_QUEUES_NATS_USER"] = "gateway-queues"
        env["SIGNALBOX_QUEUES_NATS_PASSWORD_FILE"] = secret("nats_queues")
        env["SIGNALBOX_GATEWAY_LISTEN"] = "unix:///run/signalbox/plugin.sock"
        env["SIGNALBOX_GATEWAY_SECRET_FILE"] = secret("hooks")
    elif program == "console":
        env["SIGNALBOX_CONSOLE_SECRET_KEY_FILE"] = secret("signing")
        env["SIGNALBOX_CONSOLE_REPOSITORY_ROOTS"] = "/srv/models"
    else:
        locks = folder / "locks"
        locks.mkdir(mode=0o750, exist_ok=True)
        env["SIGNALBOX_WORKER_LOCK_DIR"] = str(locks)
        env["SIGNALBOX_WORKER_MODEL_FOLDERS"] = "/srv/models"
        env["SIGNALBOX_WORKER_RUNNER_USER"] = "signalbox-runner"
    return env


def ids(found: Any) -> set[str]:
    return {one.id for one in found}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of tests lie below /tmp, which the doctor warns of; here they do not count."""
    monkeypatch.setattr(environment, "_SWEPT", ("/nowhere",))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("program", ["gateway", "worker", "console"])
def test_a_program_well_started_has_nothing_to_mend(program: str, tmp_path: Path) -> None:
    env = Environment(good(program, tmp_path / "secrets"))
    assert env.program == program
    assert list(environment.examine(env)) == []


@pytest.mark.usefixtures("elsewhere")
def test_a_key_s_seed_needs_no_user_beside_it(tmp_path: Path) -> None:
    env = good("worker", tmp_path / "secrets")
    env["SIGNALBOX_NATS_SEED_FILE"] = env.pop("SIGNALBOX_NATS_PASSWORD_FILE")
    del env["SIGNALBOX_NATS_USER"]
    assert list(environment.examine(Environment(env))) == []


BAD: list[tuple[str, str, dict[str, str]]] = [
    ("gateway", "pepper.missing", {"SIGNALBOX_KEY_PEPPER_FILE": ""}),
    ("gateway", "pepper.short", {"SIGNALBOX_KEY_PEPPER_FILE": "", "SIGNALBOX_KEY_PEPPER": LONG[:31]}),
    ("console", "pepper.short", {"SIGNALBOX_KEY_PEPPER_FILE": "", "SIGNALBOX_KEY_PEPPER": "ab" * 40}),
    ("console", "secret.shared", {"SIGNALBOX_KEY_PEPPER_FILE": "", "SIGNALBOX_KEY_PEPPER": f"nats-{LONG}"}),
    ("console", "secret.in_environment", {"SIGNALBOX_KEY_PEPPER_FILE": "", "SIGNALBOX_KEY_PEPPER": LONG}),
    ("worker", "file.unreadable", {"SIGNALBOX_NATS_PASSWORD_FILE": "/no/such/file"}),
    ("worker", "nats.anonymous", {"SIGNALBOX_NATS_PASSWORD_FILE": ""}),
    ("worker", "nats.anonymous", {"SIGNALBOX_NATS_USER": ""}),
    ("worker", "nats.password_short", {"SIGNALBOX_NATS_PASSWORD_FILE": "", "SIGNALBOX_NATS_PASSWORD": "short"}),
    ("console", "nats.admin", {"SIGNALBOX_NATS_USER": "admin"}),
    ("gateway", "queues.one_account", {"SIGNALBOX_QUEUES_NATS_USER": ""}),
    ("gateway", "nats.password_short", {"SIGNALBOX_QUEUES_NATS_PASSWORD_FILE": ""}),
    ("gateway", "nats.admin", {"SIGNALBOX_QUEUES_NATS_USER": "admin-queues"}),
    ("gateway", "nats.plain", {"SIGNALBOX_NATS_URL": "nats://n1:4222,nats://n2:4222"}),
    ("gateway", "log.debug", {"SIGNALBOX_LOG_LEVEL": "DEBUG"}),
    ("worker", "metrics.exposed", {"SIGNALBOX_METRICS_PORT": "9100", "SIGNALBOX_METRICS_HOST": "0.0.0.0"}),
    ("gateway", "gateway.exposed", {"SIGNALBOX_GATEWAY_LISTEN": "0.0.0.0:9111", "SIGNALBOX_GATEWAY_SECRET_FILE": ""}),
    ("gateway", "gateway.secret_missing", {"SIGNALBOX_GATEWAY_SECRET_FILE": ""}),
    ("gateway", "gateway.socket_open", {"SIGNALBOX_GATEWAY_SOCKET_MODE": "0666"}),
    ("gateway", "gateway.stale_keys", {"SIGNALBOX_GATEWAY_STALE_KEYS_S": "600"}),
    ("console", "console.key_missing", {"SIGNALBOX_CONSOLE_SECRET_KEY_FILE": ""}),
    ("console", "console.key_short", {"SIGNALBOX_CONSOLE_SECRET_KEY_FILE": "", "SIGNALBOX_CONSOLE_SECRET_KEY": "k"}),
    ("console", "console.any_host", {"SIGNALBOX_CONSOLE_ALLOWED_HOSTS": "console.example,*"}),
    ("console", "console.any_host", {"SIGNALBOX_CONSOLE_ALLOWED_HOSTS": ".example"}),
    ("console", "console.no_https", {"SIGNALBOX_CONSOLE_LISTEN": "0.0.0.0:8000"}),
    (
        "console",
        "console.forged_proxy",
        {"SIGNALBOX_CONSOLE_LISTEN": "0.0.0.0:8000", "SIGNALBOX_CONSOLE_TRUST_PROXY": "on"},
    ),
    ("console", "console.plain_origin", {"SIGNALBOX_CONSOLE_TRUSTED_ORIGINS": "http://console.example"}),
    ("console", "console.long_session", {"SIGNALBOX_CONSOLE_SESSION_S": "2592000"}),
    ("console", "console.long_session", {"SIGNALBOX_CONSOLE_IDLE_S": "86400"}),
    ("console", "console.loose_throttle", {"SIGNALBOX_CONSOLE_LOGIN_PER_ACCOUNT": "1000"}),
    ("console", "console.weak_admin", {"SIGNALBOX_CONSOLE_ADMIN_PASSWORD": "admin"}),
    ("console", "console.any_path", {"SIGNALBOX_CONSOLE_REPOSITORY_ROOTS": ""}),
    ("console", "console.plain_database", {"SIGNALBOX_CONSOLE_DATABASE_URL": "postgresql://a:b@db/signalbox"}),
    (
        "console",
        "console.plain_database",
        {"SIGNALBOX_CONSOLE_DATABASE_URL": "postgresql://a:b@db/signalbox?sslmode=require"},
    ),
    ("console", "console.other_settings", {"DJANGO_SETTINGS_MODULE": "my.settings"}),
    ("worker", "worker.lock_in_tmp", {"SIGNALBOX_WORKER_LOCK_DIR": ""}),
    ("worker", "worker.lock_in_tmp", {"SIGNALBOX_WORKER_LOCK_DIR": "/nowhere/locks"}),
    ("worker", "worker.no_sandbox", {"SIGNALBOX_WORKER_SANDBOX": "off"}),
    ("worker", "worker.reads_everything", {"SIGNALBOX_WORKER_MODEL_FOLDERS": ""}),
    ("worker", "worker.interval_log", {"SIGNALBOX_WORKER_INTERVAL_LOG": "/var/log/intervals"}),
]


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("program", "wanted", "change"), BAD)
def test_a_weak_variable_is_found(program: str, wanted: str, change: dict[str, str], tmp_path: Path) -> None:
    env = Environment(good(program, tmp_path / "secrets") | change, program)
    assert wanted in ids(environment.examine(env))


def test_a_secret_others_can_read_is_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "secrets"
    env = good("worker", folder)
    path = folder / "nats"
    path.chmod(0o644)
    # What a closed folder above protects is closed; pytest's own folders are, so only the file's folder is asked.
    assert "secret.file_open" not in ids(environment.examine(Environment(env)))
    assert ids(host.examine_secrets(folder)) == set()


def test_an_open_file_in_an_open_folder_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pepper"
    path.write_text(LONG)
    path.chmod(0o644)
    monkeypatch.setattr(environment, "is_open_to_others", _is_readable_by_others)
    monkeypatch.setattr(host, "is_open_to_others", _is_readable_by_others)
    env = good("gateway", tmp_path / "secrets") | {"SIGNALBOX_KEY_PEPPER_FILE": str(path)}
    assert "secret.file_open" in ids(environment.examine(Environment(env)))
    assert ids(host.examine_secrets(tmp_path)) == {"secret.file_open"}
    path.chmod(0o600)
    assert ids(host.examine_secrets(tmp_path)) == set()


def _is_readable_by_others(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IROTH)


def test_the_lock_folder_is_looked_at(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    locks.mkdir()
    locks.chmod(0o777)
    assert ids(environment.lock_folder(locks)) == {"worker.lock_open"}
    locks.chmod(0o750)
    assert ids(environment.lock_folder(locks)) == set()


def test_a_remote_file_system_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path}/my\\040locks nfs4 rw 0 0\nx {tmp_path}/m tmpfs rw 0 0\n"
    )
    assert remote_kind(tmp_path / "my locks" / "deep", mounts) == "nfs4"
    assert remote_kind(tmp_path, mounts) == ""
    folder = tmp_path / "locks"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(environment, "remote_kind", lambda _: "nfs4")
    assert ids(environment.lock_folder(folder)) == {"worker.lock_remote"}


HOST_KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def good_conf() -> str:
    """A configuration nothing is wrong with but what is on disk."""
    users: dict[str, str] = {user: f"${natsserver.password_variable(user)}" for user in USERS}
    hosts = {host_user(HOST_KEY): HOST_KEY}
    text = 'http: "127.0.0.1:8222"\n' + natsserver.render("/data", port=4222, users=users, hosts=hosts)
    return text.replace("sync_interval: always", "sync_interval: always, cipher: aes")


def test_the_configuration_we_render_ourselves_has_nothing_to_mend() -> None:
    assert list(natsrules.examine_conf(natsconf.parse(good_conf()), "nats.conf")) == []


CONFS: list[tuple[str, Callable[[str], str]]] = [
    ("nats.unsynced", lambda text: text.replace("sync_interval: always,", "")),
    ("nats.unsynced", lambda text: text.replace("sync_interval: always", "sync_interval: 2m")),
    ("nats.no_users", lambda text: text[: text.index("accounts {")]),
    ("queues.one_account", lambda text: text[: text.index("  QUEUES: {")] + "}"),
    ("queues.unbounded", lambda text: re.sub("max_file: [0-9]+, ", "", text)),
    ("nats.too_much", lambda text: text.replace('"rear.*.*.*"', '"st.>"')),
    ("nats.literal_password", lambda text: text.replace("$NATS_ADMIN_QUEUES_PASSWORD", '"letmein"')),
    ("nats.no_auth_user", lambda text: text + "\nno_auth_user: gateway\n"),
    ("nats.too_much", lambda text: text.replace('"jobs.*.*.*.*.*"', '"jobs.>"')),
    ("nats.too_much", lambda text: text.replace('"$KV.idem.>"', '">"')),
    ("nats.too_much", lambda text: text.replace('"cancel.*", "release', '"_INBOX_gateway.>", "lane')),
    ("nats.too_much", lambda text: text + "\nauthorization { users: [ { user: x, permissions: { publish: a } } ] }"),
    ("nats.too_much", lambda text: text + '\nauthorization { users: [ { user: worker, password: "$P" } ] }'),
    ("nats.too_much", lambda text: text.replace('"$KV.workers.host-dxu4rcsj-1"', '"$KV.workers.*"')),
    ("nats.too_much", lambda text: text.replace(HOST_KEY, HOST_KEY.replace("UDXU", "UAXU"))),
    ("nats.literal_password", lambda text: text.replace("$NATS_WORKER_PASSWORD", '"letmein"')),
    ("nats.monitor_exposed", lambda text: text.replace("127.0.0.1:8222", "0.0.0.0:8222")),
    ("nats.monitor_exposed", lambda text: text + "\nhttp_port = 8222\n"),
    ("nats.client_plain", lambda text: text.replace('host: "127.0.0.1"', 'host: "0.0.0.0"')),
    ("nats.client_plain", lambda text: text.replace('host: "127.0.0.1"', "listen: 10.0.0.1:4222")),
    (
        "nats.client_plain",
        lambda text: text.replace(
            'host: "127.0.0.1"', "listen: 10.0.0.1:4222\ntls { cert_file: x }\nallow_non_tls: true"
        ),
    ),
    ("nats.cluster_open", lambda text: text + "\ncluster { name: x, listen: 0.0.0.0:6222 }\n"),
    ("nats.cluster_open", lambda text: text + "\ncluster { listen: 0.0.0.0:6222, tls { verify: false } }\n"),
    ("nats.cluster_open", lambda text: text + "\ncluster { listen: 0.0.0.0:6222, authorization { user: x } }\n"),
    ("nats.trace", lambda text: text + "\ntrace: true\n"),
    ("nats.trace", lambda text: text + "\ndebug = yes\n"),
    ("nats.no_limit", lambda text: text.replace("max_payload: 2097152", "")),
    ("nats.unencrypted", lambda text: text.replace(", cipher: aes", "")),
]


def test_our_own_nats_conf_has_nothing_to_mend_but_what_is_on_disk() -> None:
    conf = natsconf.read(ROOT / "deploy" / "nats" / "nats.conf")
    assert ids(natsrules.examine_conf(conf, "nats.conf")) == {"nats.unencrypted"}


@pytest.mark.parametrize(("wanted", "change"), CONFS)
def test_a_weak_line_of_nats_conf_is_found(wanted: str, change: Callable[[str], str]) -> None:
    text = change(good_conf())
    assert text != good_conf()
    assert wanted in ids(natsrules.examine_conf(natsconf.parse(text), "nats.conf"))


@pytest.mark.parametrize("text", ["a {", "a: [1, 2", "a: {b: }}", "a", 'include "nowhere.conf"', "x: " + "[" * 100])
def test_a_broken_nats_conf_is_said_to_be_broken(text: str) -> None:
    with pytest.raises(Misconfigured):
        natsconf.parse(text)


def test_nats_conf_is_read_as_the_server_reads_it(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("Extra = yes // trailing\n")
    text = "A { b: 'c d'; e = [1, {f: nats://x:1}] } # no\ninclude more.conf\nlisten: 0.0.0.0:42\n"
    conf = natsconf.parse(text, tmp_path)
    assert conf.values == {"a": {"b": "c d", "e": ["1", {"f": "nats://x:1"}]}, "extra": "yes", "listen": "0.0.0.0:42"}
    assert (conf.text("a", "b"), conf.text("a", "x"), dict(conf.block("extra"))) == ("c d", "", {})


def test_a_bound_worker_may_have_less_and_nobody_more() -> None:
    bound = permissions("worker", worker="w1", gpus=["GPU-1"])
    given = {"publish": {"allow": list(bound.publish)}, "subscribe": list(bound.subscribe)}
    wide = permissions("worker", worker="w1")
    named = sorted({"$KV.leases.GPU-1", "$KV.waiters.GPU-1.w1"})
    assert natsrules.beyond("w1", given) == named  # a GPU's name is the operator's to give; the doctor says so
    assert natsrules.beyond("w1", {"publish": list(wide.publish), "subscribe": list(wide.subscribe)}) == []


def test_a_host_may_have_the_rights_of_its_key_and_no_other_host_s() -> None:
    own, other = host_permissions("host-aaaaaaaa"), host_permissions("host-bbbbbbbb")
    assert natsrules.beyond("host-aaaaaaaa", {"publish": list(own.publish), "subscribe": list(own.subscribe)}) == []
    found = natsrules.beyond("host-aaaaaaaa", {"publish": list(other.publish), "subscribe": list(other.subscribe)})
    assert len(found) == 2 * HOST_WORKERS + 1 + 1  # presence and tickets of workers, the host's presence, answers
    assert natsrules.beyond("host-aaaaaaaa", {"publish": ["x"], "subscribe": []}, "console") == []


def test_an_account_s_reader_may_have_its_own_rights_and_no_other_account_s() -> None:
    own, other = reader_permissions("acme"), reader_permissions("other")
    assert natsrules.beyond("reader-acme", {"publish": list(own.publish), "subscribe": list(own.subscribe)}) == []
    found = natsrules.beyond("reader-acme", {"publish": list(other.publish), "subscribe": list(own.subscribe)})
    assert len(found) == len(other.publish) - 1  # but for that to its own rights


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates in one file, of 90 and of 40 days."""
    path = tmp_path_factory.mktemp("certificates") / "all.pem"
    for days in ("90", "40"):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", os.devnull]
        made = subprocess.run(
            ["openssl", "req", "-x509", *key, "-subj", "/CN=x", "-days", days],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        with path.open("a") as file:
            file.write(made.stdout)
    return path


@pytest.mark.parametrize(
    ("later", "said"), [(5, []), (15, ["in 24 days"]), (60, ["ended on"]), (365 * 40, ["ended on"])]
)
def test_the_certificate_of_a_file_that_ends_first_is_named_a_month_before(
    pem: Path, later: int, said: list[str]
) -> None:
    now = datetime.now(UTC) + timedelta(days=later)
    found = list(certificates.examine_file(pem, now))
    assert [one.id for one in found] == ["certificate.ends_soon"] * len(said)
    assert all(words in one.what for words, one in zip(said, found, strict=True))


def test_a_certificate_that_ends_after_2049_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "far.pem"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", os.devnull]
    subprocess.run(
        ["openssl", "req", "-x509", *key, "-subj", "/CN=x", "-days", "20000", "-out", str(path)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert list(certificates.examine_file(path)) == []
    (found,) = certificates.examine_file(path, datetime.now(UTC) + timedelta(days=19_980))
    assert found.id == "certificate.ends_soon"


def test_a_file_of_no_certificate_is_said_to_be_unreadable(pem: Path, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    assert ids(certificates.examine_file(path)) == {"file.unreadable"}
    path.write_text("no certificate")
    assert ids(certificates.examine_file(path)) == {"file.unreadable"}
    body = "".join(pem.read_text().splitlines(keepends=True)[1:2])
    path.write_text(f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
    assert ids(certificates.examine_file(path)) == {"file.unreadable"}
    env = good("worker", tmp_path / "secrets") | {"SIGNALBOX_NATS_CA_FILE": str(path)}
    assert "file.unreadable" in ids(environment.examine(Environment(env)))


TYK_ENV = dict.fromkeys(("TYK_GW_SECRET", "TYK_GW_NODESECRET", "TYK_GW_STORAGE_PASSWORD"), LONG)


def conf_of(**changes: Any) -> dict[str, Any]:
    conf: dict[str, Any] = json.loads((ROOT / "tyk" / "tyk.conf").read_bytes())
    conf["coprocess_options"]["coprocess_grpc_server"] = "unix:///run/signalbox/plugin.sock"
    return conf | changes


def test_our_own_tyk_conf_has_nothing_to_mend() -> None:
    assert list(tyk.examine_conf(conf_of(), "tyk.conf", TYK_ENV)) == []


TYKS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("tyk.secret", {}, {"TYK_GW_SECRET": "352d20ee67be67f6340b4c0605b044b7"}),
    ("tyk.secret", {}, {"TYK_GW_NODESECRET": ""}),
    ("tyk.control_public", {"control_api_port": 0}, {}),
    ("tyk.control_public", {"control_api_port": 9697}, {}),
    ("tyk.keys_unhashed", {"hash_keys": False}, {}),
    ("tyk.bundles", {"enable_bundle_downloader": True}, {}),
    ("tyk.profiler", {"enable_http_profiler": True}, {}),
    ("tyk.debug", {"log_level": "debug"}, {}),
    ("tyk.debug", {}, {"TYK_LOGLEVEL": "debug"}),
    ("tyk.recording", {"enable_analytics": True, "analytics_config": {"enable_detailed_recording": True}}, {}),
    ("tyk.no_body_limit", {"http_server_options": {}}, {}),
    ("tyk.version_shown", {"hide_generator_header": False}, {}),
    ("tyk.redis_open", {}, {"TYK_GW_STORAGE_PASSWORD": ""}),
    ("tyk.plugin_plain", {"coprocess_options": {"coprocess_grpc_server": "tcp://10.0.0.2:9111"}}, {}),
]


def test_a_control_port_that_callers_reach_is_found() -> None:
    callers = {api_of()["listen_port"]}
    assert not list(tyk.examine_conf(conf_of(), "tyk.conf", TYK_ENV, callers))
    mixed = conf_of(control_api_port=api_of()["listen_port"])
    assert ids(tyk.examine_conf(mixed, "tyk.conf", TYK_ENV, callers)) == {"tyk.control_public"}


@pytest.mark.parametrize(("wanted", "change", "env"), TYKS)
def test_a_weak_setting_of_tyk_is_found(wanted: str, change: dict[str, Any], env: dict[str, str]) -> None:
    assert wanted in ids(tyk.examine_conf(conf_of(**change), "tyk.conf", TYK_ENV | env))


def api_of(change: Callable[[dict[str, Any]], object] = lambda _: None) -> dict[str, Any]:
    api: dict[str, Any] = json.loads((ROOT / "tyk" / "apps" / "signalbox.json").read_bytes())
    api["config_data"] = {"secret": LONG}
    change(api)
    return api


def test_our_own_api_definitions_have_nothing_to_mend() -> None:
    for path in (ROOT / "tyk" / "apps").glob("*.json"):
        definition = json.loads(path.read_bytes())
        if not definition["use_keyless"]:
            definition["config_data"] = {"secret": LONG}
        target = definition["proxy"]["target_url"]
        definition["proxy"]["target_url"] = target.replace("//plugin:", "//127.0.0.1:")
        assert list(tyk.examine_api(definition, path.name)) == []


def to_an_upstream(api: dict[str, Any]) -> None:
    api["custom_middleware"].pop("post")
    api["proxy"]["target_url"] = "h2c://10.0.0.2:9112"


APIS: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    ("tyk.keyless", lambda api: api.update(use_keyless=True)),
    ("tyk.no_auth_hook", lambda api: api.update(enable_coprocess_auth=False)),
    ("tyk.no_auth_hook", lambda api: api["custom_middleware"].pop("auth_check")),
    ("tyk.cached_auth", lambda api: api["custom_middleware"].update(id_extractor={"extract_from": "header"})),
    ("tyk.recording", lambda api: api.update(enable_detailed_recording=True)),
    ("tyk.cors", lambda api: api.update(CORS={"enable": True, "allowed_origins": ["*"]})),
    ("tyk.upstream", lambda api: api["proxy"].update(target_url="http://internal.example/")),
    ("tyk.upstream_plain", to_an_upstream),
    ("gateway.secret_missing", lambda api: api.pop("config_data")),
]


@pytest.mark.parametrize(("wanted", "change"), APIS)
def test_a_weak_api_definition_is_found(wanted: str, change: Callable[[dict[str, Any]], object]) -> None:
    assert wanted in ids(tyk.examine_api(api_of(change), "signalbox.json"))


class disk_usage(NamedTuple):  # noqa: N801  as shutil has it
    """Bytes of a file system."""

    total: int
    used: int
    free: int


def jetstream(**stats: int) -> dict[str, Any]:
    """What a monitor tells of a server that may store 100 bytes."""
    return {"jetstream": {"config": {"sync_always": True, "max_storage": 100}, "stats": stats}}


GOOD_VARZ = {
    "auth_required": True,
    "http_host": "127.0.0.1",
    "http_port": 8222,
    **jetstream(storage=79, reserved_storage=70),
}


@pytest.mark.parametrize(
    ("wanted", "change"),
    [
        ("nats.unsynced", {"jetstream": {"config": {"sync_interval": 120_000_000_000}}}),
        ("nats.unsynced", {"jetstream": None}),
        ("nats.monitor_exposed", {"http_host": "0.0.0.0"}),
        ("nats.no_users", {"auth_required": False}),
        ("nats.nearly_full", jetstream(storage=80, reserved_storage=70)),
        ("nats.overcommitted", jetstream(storage=79, reserved_storage=71)),
    ],
)
def test_what_a_running_server_says_of_itself_is_judged(wanted: str, change: Mapping[str, Any]) -> None:
    assert list(natsrules.examine_varz(GOOD_VARZ, "varz")) == []
    assert wanted in ids(natsrules.examine_varz({**GOOD_VARZ, **change}, "varz"))


def test_a_disk_that_is_nearly_full_is_found_where_it_is_this_machine_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    varz = {**GOOD_VARZ, "jetstream": {"config": {"sync_always": True, "store_dir": str(tmp_path)}}}
    for free, wanted in ((21, set()), (20, {"nats.nearly_full"})):
        usage = disk_usage(total=110, used=100 - free, free=free)  # ten are kept for root
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        assert ids(natsrules.examine_varz(varz, "varz")) == wanted


def test_a_worker_without_a_sandbox_is_found() -> None:
    ready = worker(sandbox=("network", "files"))
    assert list(natsrules.examine_workers([ready, worker(state="starting")])) == []
    assert ids(natsrules.examine_workers([worker()])) == {"worker.no_sandbox"}


def worker(**changes: Any) -> Worker:
    facts: dict[str, Any] = {
        "id": "w1",
        "boot": "b",
        "host": "h",
        "pid": 1,
        "state": "ready",
        "device": Device(id="GPU-1", kind="nvidia", name="x"),
        "started_at": 1.0,
        "beat_at": 1.0,
    }
    return Worker(**facts | changes)


@pytest.mark.parametrize(("mode", "wanted"), [("Default", {"host.gpu_shared"}), ("Exclusive_Process", set())])
def test_the_compute_mode_of_gpus_is_looked_at(mode: str, wanted: set[str], tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho 'GPU-1, {mode}'\n")
    program.chmod(0o755)
    assert ids(host.examine_gpus(str(program))) == wanted


def test_a_machine_without_gpus_has_none_to_mend(tmp_path: Path) -> None:
    assert list(host.examine_gpus(str(tmp_path / "nothing"))) == []
    broken = tmp_path / "nvidia-smi"
    broken.write_text("#!/bin/sh\necho 'Failed to initialize NVML'; exit 9\n")
    broken.chmod(0o755)
    assert list(host.examine_gpus(str(broken))) == []


def test_root_and_core_dumps_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    assert ids(host.examine_process()) == {"host.root", "host.core_dumps"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (0, 0))
    assert ids(host.examine_process()) == set()


def test_a_worker_whose_models_run_as_root_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = good("worker", tmp_path / "secrets") | {"SIGNALBOX_WORKER_RUNNER_USER": ""}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "worker.runner_is_root" in ids(environment.examine(Environment(env)))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "worker.runner_is_root" not in ids(environment.examine(Environment(env)))


def test_every_finding_of_the_catalog_is_found_by_some_test_here() -> None:
    tried = {wanted for _, wanted, _ in BAD} | {wanted for wanted, _ in CONFS}
    tried |= {wanted for wanted, _, _ in TYKS} | {wanted for wanted, _ in APIS}
    tried |= {"secret.file_open", "worker.lock_open", "worker.lock_remote", "host.gpu_shared", "host.root"}
    tried |= {"host.core_dumps", "worker.runner_is_root", "certificate.ends_soon"}
    of_a_running_server = {
        "nats.away",
        "nats.old",
        "nats.streams_differ",
        "nats.single_copy",
        "nats.other_rights",
        "nats.lazy_copies",
        "nats.nearly_full",
        "nats.overcommitted",
        "nats.damaged",
        "queues.streams_differ",
        "queues.nearly_full",
        "certificate.refused",
        "uploads.unwritable",
    }
    assert tried | of_a_running_server == set(CATALOG)
    assert len(BAD) + len(CONFS) + len(TYKS) + len(APIS) > 70


def test_the_doctor_s_defaults_are_the_programs_own() -> None:
    classes: dict[str, type[Wire]] = {
        "SIGNALBOX_GATEWAY_": GatewaySettings,
        "SIGNALBOX_CONSOLE_": ConsoleSettings,
        "SIGNALBOX_WORKER_": WorkerSettings,
        "SIGNALBOX_": Wire,
    }
    for name, default in environment.DEFAULTS.items():
        prefix = max((p for p in classes if name.startswith(p)), key=len)
        field = name.removeprefix(prefix).lower()
        real = next(f.default for f in fields(classes[prefix]) if f.name == field)
        shown = ",".join(real) if isinstance(real, tuple) else str(real)
        assert {"True": "on", "False": "off"}.get(shown, shown) == default, name


def test_an_accepted_finding_needs_no_mending_and_keeps_its_reason() -> None:
    (one,) = accept([Finding("nats.plain", "x", "y")], {"nats.plain": "a network of our own"})
    assert (one.is_weak, one.accepted) == (False, "a network of our own")
    (other,) = accept([Finding("nats.away", "x", "y")], {"nats.plain": "a network of our own"})
    assert other.is_weak
    assert "because: a network of our own" in main.as_text([one])
    low = Finding("log.debug", "x", "y")
    assert low.check.severity is Severity.LOW
    assert not low.is_weak


async def test_a_server_that_is_too_old_is_not_asked_anything_else() -> None:
    class Old:
        server_version = "2.10.3"

    found = await natsrules.examine_server(cast("Bus", Old()), role="")
    assert ids(found) == {"nats.old"}
