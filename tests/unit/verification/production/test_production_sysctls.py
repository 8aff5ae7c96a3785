"""Settings of the kernel that the compose file has for a service: those of its network, and no others."""

from pathlib import Path

import pytest

from signalbox.program.errors import Misconfigured
from verification.production import compose

ROOT = Path(__file__).resolve().parents[4]


def test_tyk_s_are_read_from_the_compose_file() -> None:
    tyk = compose.read(ROOT / "docker-compose.yml", {}).services["tyk"]
    assert tyk.sysctls == {"net.ipv4.tcp_retries2": 4, "net.ipv4.tcp_syn_retries": 2}


def test_one_that_would_change_this_machine_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_text("services: {one: {image: redis, sysctls: {vm.overcommit_memory: 1}}}")
    with pytest.raises(Misconfigured, match=r"vm\.overcommit_memory"):
        compose.read(file, {})
