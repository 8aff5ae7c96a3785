"""docker-compose.yml as it ships, run here: started, used through each plugin, one NATS node killed, stopped."""

import json
import os
import signal
import stat
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import pytest

from signalbox.program.errors import Misconfigured
from tests.e2e.upprocess import ROOT, Up, wait_until_gone
from verification.production import compose, machine
from verification.production.options import COMPOSE_FILE

WAIT_S: Final = 120.0
INSTANCES: Final = [float(number) for number in range(6000)]
RETRYABLE: Final = {429, 503, 504}

pytestmark = [pytest.mark.tyk, pytest.mark.postgres, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    try:
        machine.describe()
    except Misconfigured as error:
        pytest.skip(error.public_message)
    data = tmp_path_factory.mktemp("production") / "data"
    started = Up(data, "--ports", "any", program="verification.production")
    try:
        started.wait_until_up()
        yield started
    finally:
        if started.process.poll() is None:
            started.end(signal.SIGINT)


@pytest.fixture(scope="module")
def doc(up: Up) -> dict[str, Any]:
    return reported(up)


def reported(up: Up) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((up.data / "up.json").read_text())
    return found


def predict(doc: dict[str, Any]) -> int:
    """One real prediction through Tyk; the answer's status."""
    request = urllib.request.Request(  # noqa: S310  our own address
        f"{doc['front']}/v1/models/half_plus_two:predict",
        data=json.dumps({"instances": INSTANCES}).encode(),
        headers={"Authorization": f"Bearer {doc['api_key']}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:  # noqa: S310  see above
            values = json.load(answer)["predictions"]
    except HTTPError as error:
        with error:
            return error.code
    assert values == [each / 2 + 2 for each in INSTANCES]
    return 200


def sent_to(doc: dict[str, Any], service: str, network: str) -> int:
    """Bytes that this machine's end of a link has given to a service."""
    end = doc["links"][service][network]
    return int(Path("/sys/class/net", end, "statistics/tx_bytes").read_text())


def test_every_service_that_stays_runs_in_a_namespace_of_its_own(up: Up, doc: dict[str, Any]) -> None:
    assert stat.S_IMODE((up.data / "up.json").stat().st_mode) == 0o600
    services = compose.read(ROOT / COMPOSE_FILE, {}).services
    staying = {name for name, service in services.items() if not service.ends}
    assert set(doc["processes"]) == {"production", *staying}
    for name in staying:
        pid = doc["processes"][name]
        inside = Path(f"/proc/{pid}/ns/net").stat().st_ino
        assert inside == Path("/run/netns", doc["namespaces"][name]).stat().st_ino, name
        assert Path(f"/proc/{pid}/root").stat().st_dev != Path("/").stat().st_dev, name


def test_no_program_of_ours_is_root_or_may_become_it(doc: dict[str, Any]) -> None:
    for name, pid in doc["processes"].items():
        if name == "production" or name.startswith("nats-"):  # the image of NATS has no other user
            continue
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert "0" not in status["Uid"].split(), name
        assert int(status["CapEff"], 16) == 0, name
        assert status["NoNewPrivs"] == "1", name


def test_each_program_of_ours_shows_its_metrics_to_this_machine(doc: dict[str, Any]) -> None:
    services = compose.read(ROOT / COMPOSE_FILE, {}).services
    ours = {name for name, service in services.items() if service.build and not service.ends}
    assert set(doc["metrics"]) == ours
    for url in doc["metrics"].values():
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:  # noqa: S310  our own address
            assert b"# HELP signalbox_" in answer.read()


def test_a_prediction_goes_through_each_plugin(doc: dict[str, Any]) -> None:
    plugins = ("plugin-1", "plugin-2")
    before = {name: sent_to(doc, name, "gateway") for name in plugins}
    least = len(json.dumps(INSTANCES))
    deadline = time.monotonic() + WAIT_S
    while any(sent_to(doc, name, "gateway") - before[name] < least for name in plugins):
        assert predict(doc) == 200
        assert time.monotonic() < deadline, "Tyk has sent nothing to one of them"


def test_predictions_go_on_when_a_nats_node_is_killed(up: Up, doc: dict[str, Any]) -> None:
    killed = reported(up)["processes"]["nats-2"]
    os.kill(killed, signal.SIGKILL)
    up.wait_for_line(r"nats-2 was ended by SIGKILL; starting it again")
    deadline = time.monotonic() + WAIT_S
    while (status := predict(doc)) != 200:
        assert status in RETRYABLE
        assert time.monotonic() < deadline
    up.wait_for_line(r"nats-2 is back")
    assert reported(up)["processes"]["nats-2"] != killed


def test_stopping_leaves_the_data_and_nothing_else(up: Up, doc: dict[str, Any]) -> None:
    everything = up.everything()
    assert len(everything) > len(doc["processes"])
    assert up.end(signal.SIGINT) == 0
    wait_until_gone(everything)
    assert "stopped; your data stays in" in up.printed[-1]
    assert not (up.data / "up.json").exists()
    ends = [end for links in doc["links"].values() for end in links.values()]
    assert not [end for end in ends if Path("/sys/class/net", end).exists()]
    assert not [name for name in doc["namespaces"].values() if Path("/run/netns", name).exists()]
    stem = f"sb{up.process.pid}b"
    assert not [path for path in Path("/sys/class/net").iterdir() if path.name.startswith(stem)]
    assert str(up.data) not in Path("/proc/self/mountinfo").read_text()
