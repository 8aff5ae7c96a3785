"""deploy/make_secrets.py makes what it says, keeps what exists, and its certificates hold what TLS asks of them."""

import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from signalbox.ops import cli

SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "make_secrets.py"
NODES = ("nats-1", "nats-2", "nats-3")


def run(folder: Path, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """The script, by an interpreter that sees no library but Python's own."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), "--folder", str(folder), *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def made(folder: Path, *arguments: str) -> list[str]:
    """Names that the script says it wrote."""
    reported = run(folder, *arguments)
    assert reported.returncode == 0, reported.stderr
    return [
        str(Path(line.removeprefix("made ")).relative_to(folder))
        for line in reported.stdout.splitlines()
        if line.startswith("made ")
    ]


def texts(folder: Path) -> Mapping[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the first run leaves it. Tests only read it."""
    folder = tmp_path_factory.mktemp("made") / "secrets"
    made(folder)
    return folder


@pytest.fixture
def folder(first: Path, tmp_path: Path) -> Path:
    """Such a folder, to change."""
    return shutil.copytree(first, tmp_path / "secrets")


def shown(path: Path, *what: str) -> str:
    """What openssl says of a certificate."""
    return subprocess.run(
        ["openssl", "x509", "-noout", "-in", str(path), *what], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def names(path: Path) -> set[str]:
    return set(re.findall(r"(?:DNS|IP Address):([^\s,]+)", shown(path, "-ext", "subjectAltName")))


def shake_hands(server: Path, trusted: Path, name: str) -> None:
    """Client and server, both with certificates, as strict as OpenSSL can be; raises what one of them would."""
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here = ssl.create_default_context(cafile=str(trusted))
    for context in (there, here):
        context.load_cert_chain(str(server))
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    there.load_verify_locations(cafile=str(trusted))
    there.verify_mode = ssl.CERT_REQUIRED
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = here.wrap_bio(down, up, server_hostname=name)
    remote = there.wrap_bio(up, down, server_side=True)
    unready = [client, remote]
    while unready:
        for end in list(unready):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            unready.remove(end)


def test_everything_is_kept_when_it_runs_again(folder: Path) -> None:
    before = texts(folder)
    assert made(folder) == ["tyk_apps"]
    assert texts(folder) == before


def test_the_folder_and_the_authority_s_key_are_closed_and_the_rest_can_be_read(first: Path) -> None:
    def mode(name: str) -> int:
        return stat.S_IMODE((first / name).stat().st_mode)

    assert (mode("."), mode("ca"), mode("ca/key.pem")) == (0o700, 0o700, 0o600)
    readable = [name for name in texts(first) if name != "ca/key.pem"]
    assert {mode(name) for name in readable} == {0o644}
    assert not [name for name in readable if "key.pem" in name or name.endswith(".new")]


def test_the_authority_s_key_is_in_no_other_file(first: Path) -> None:
    key = (first / "ca" / "key.pem").read_text().splitlines()[1]
    assert [name for name, text in texts(first).items() if key in text] == ["ca/key.pem"]


@pytest.mark.parametrize("node", NODES)
def test_a_node_s_certificate_serves_both_ends_under_its_names_alone(first: Path, node: str) -> None:
    path = first / "tls" / node / "node.pem"
    assert names(path) == {node, "localhost", "127.0.0.1"}
    for name in (node, "localhost", "127.0.0.1"):
        shake_hands(path, first / "tls_ca", name)
    for other in ({*NODES} - {node}) | {"127.0.0.2"}:
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            shake_hands(path, first / "tls_ca", other)
    assert "P-256" in shown(path, "-text")
    assert (first / "tls" / node / "ca.pem").read_text() == (first / "tls_ca").read_text()


def test_a_certificate_of_another_authority_is_refused(first: Path, tmp_path: Path) -> None:
    made(tmp_path / "others")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path / "others" / "tls" / "nats-1" / "node.pem", first / "tls_ca", "nats-1")


def test_validity_is_as_stated(first: Path) -> None:
    def ends_within(path: Path, days: int) -> bool:
        asked = ["openssl", "x509", "-noout", "-in", str(path), "-checkend", str(days * 86_400)]
        return subprocess.run(asked, capture_output=True, check=False, timeout=60).returncode != 0

    for path, days in ((first / "tls/nats-1/node.pem", 397), (first / "ca/certificate.pem", 3650)):
        assert (ends_within(path, days - 1), ends_within(path, days + 1)) == (False, True)


def test_a_renewal_makes_every_certificate_anew_of_the_same_authority(folder: Path) -> None:
    made(folder, "--node", "nats-2=10.0.0.12,nats-2.example.org")
    before = texts(folder)
    assert made(folder, "--renew") == ["tyk_apps", *(f"tls/{node}/node.pem" for node in NODES)]
    after = texts(folder)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {f"tls/{node}/node.pem" for node in NODES}
    wanted = {"nats-2", "localhost", "127.0.0.1", "10.0.0.12", "nats-2.example.org"}
    assert names(folder / "tls/nats-2/node.pem") == wanted
    shake_hands(folder / "tls/nats-2/node.pem", folder / "tls_ca", "10.0.0.12")


def test_further_names_make_a_certificate_anew_and_are_kept(folder: Path) -> None:
    given = ("--node", "nats-1=10.0.0.11")
    assert made(folder, *given) == ["tyk_apps", "tls/nats-1/node.pem"]
    assert made(folder, *given) == ["tyk_apps"]
    assert made(folder) == ["tyk_apps"]
    assert names(folder / "tls/nats-1/node.pem") >= {"10.0.0.11", "nats-1"}


def test_two_authorities_are_trusted_while_one_takes_the_place_of_the_other(folder: Path) -> None:
    old = folder / "tls" / "nats-1" / "node.pem"
    for path in (folder / "ca").iterdir():
        path.unlink()
    assert made(folder) == ["tyk_apps", "ca/key.pem", "ca/certificate.pem", "tls_ca"]
    shake_hands(old, folder / "tls_ca", "nats-1")
    made(folder, "--renew")
    shake_hands(old, folder / "tls" / "nats-3" / "ca.pem", "nats-1")
    (folder / "tls_ca").unlink()
    made(folder)
    assert (folder / "tls_ca").read_text() == (folder / "ca/certificate.pem").read_text()
    shake_hands(old, folder / "tls" / "nats-3" / "ca.pem", "nats-1")


def test_an_authority_whose_key_is_kept_elsewhere_signs_nothing_and_hinders_nothing(folder: Path) -> None:
    (folder / "ca" / "key.pem").unlink()
    assert made(folder) == ["tyk_apps"]
    reported = run(folder, "--renew")
    assert reported.returncode != 0
    assert "without the authority's key" in reported.stderr
    assert "Traceback" not in reported.stderr


def test_a_certificate_that_ends_soon_is_named(folder: Path) -> None:
    assert "ends within" not in run(folder).stdout
    path = folder / "tls" / "nats-2" / "node.pem"
    short = subprocess.run(
        ["openssl", "x509", "-in", str(path), "-signkey", str(path), "-days", "29"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    path.write_text(short)
    said = [line for line in run(folder).stdout.splitlines() if "ends within" in line]
    assert said == [f"{path} ends within 30 days: docs/certificates.md"]


def test_workers_named_get_passwords_and_earlier_ones_keep_theirs(folder: Path) -> None:
    before = (folder / "nats.env").read_text()
    more = ("--worker", "worker-1", "--worker", "worker-3", "--worker", "gpu_4")
    assert made(folder, *more)[:3] == ["nats_worker-3", "nats_gpu_4", "nats.env"]
    after = (folder / "nats.env").read_text()
    assert after.startswith(before)
    given = dict(line.split("=", 1) for line in after.splitlines())
    assert given["NATS_WORKER_3_PASSWORD"] == (folder / "nats_worker-3").read_text()
    assert given["NATS_GPU_4_PASSWORD"] == (folder / "nats_gpu_4").read_text()
    assert "NATS_WORKER_2_PASSWORD" in given
    assert made(folder) == ["tyk_apps"]


def test_a_password_made_anew_reaches_the_servers_too(folder: Path) -> None:
    (folder / "nats_gateway").unlink()
    assert made(folder)[:2] == ["nats_gateway", "nats.env"]
    password = (folder / "nats_gateway").read_text()
    assert f"NATS_GATEWAY_PASSWORD={password}\n" in (folder / "nats.env").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--worker", "../x"),
        ("--worker", "admin"),
        ("--worker", ""),
        ("--node", "nats-1/x"),
        ("--node", "nats-1=a b"),
        ("--node", "nats-1=x,DNS:y"),
        ("--node", ""),
    ],
)
def test_names_that_would_reach_elsewhere_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    reported = run(tmp_path / "secrets", *arguments)
    assert reported.returncode == 2
    assert not (tmp_path / "secrets").exists()


def test_a_machine_without_openssl_is_told_so(tmp_path: Path) -> None:
    reported = run(tmp_path / "secrets", PATH=str(tmp_path))
    assert reported.returncode != 0
    assert "openssl" in reported.stderr
    assert "Traceback" not in reported.stderr


def test_the_command_writes_the_definitions_that_the_script_writes(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNALBOX_GATEWAY_SECRET_FILE", str(first / "plugin_secret"))
    assert cli.main(["tyk-apps", "--output", str(tmp_path / "new" / "apps")]) == 0
    assert texts(tmp_path / "new" / "apps") == texts(first / "tyk_apps")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new" / "apps").iterdir()} == {0o640}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "is not set"),
        ({"SIGNALBOX_GATEWAY_SECRET": " "}, "is not set"),
        ({"SIGNALBOX_GATEWAY_SECRET_FILE": "/nowhere"}, "_FILE cannot be read"),
        ({"SIGNALBOX_GATEWAY_SECRET": "s", "SIGNALBOX_GATEWAY_SECRET_FILE": "/nowhere"}, "not both"),
    ],
)
def test_the_command_writes_no_definition_without_the_secret(
    given: dict[str, str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["tyk-apps", "--output", str(tmp_path / "apps")]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "apps").exists()
