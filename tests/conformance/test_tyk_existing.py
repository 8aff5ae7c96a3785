"""A Tyk that is somebody's already takes Signalbox in, as docs/deploy.md says, and their API goes on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.conftest import Front, FrontMaker

pytestmark = pytest.mark.tyk
KINDS = ["tyk"]
DOMAIN: Final = "inference.example.org"
OURS: Final = {"Host": DOMAIN}
THEIRS: Final[dict[str, Any]] = {
    "name": "Theirs",
    "api_id": "theirs",
    "org_id": "theirs",
    "active": True,
    "use_keyless": True,
    "proxy": {"listen_path": "/", "target_url": "http://plugin:9113", "strip_listen_path": False},
    "version_data": {"not_versioned": True, "versions": {"Default": {"name": "Default"}}},
}
"""It has our longest path for itself too, on the same port."""


@pytest.fixture
def shared(files: Path, new_front: FrontMaker) -> Iterator[Front]:
    """Their Tyk, with our definitions under a name of their own, and our rules for errors in each that has none."""
    conf = json.loads((files / "tyk.conf").read_bytes())
    rules = conf.pop("error_overrides")
    (files / "tyk.conf").write_text(json.dumps({**conf, "enable_custom_domains": True}))
    for path in (files / "apps").iterdir():
        definition = json.loads(path.read_bytes())
        path.write_text(json.dumps({"error_overrides": rules, **definition, "domain": DOMAIN}))
    (files / "apps" / "theirs.json").write_text(json.dumps(THEIRS))
    with new_front(files) as front:
        yield front


def test_both_are_found_by_their_host_s_name_and_only_ours_depends_on_the_plugin(shared: Front) -> None:
    assert shared.seen(headers=OURS)["hook_name"] == "SignalboxPost"
    inferred = shared.ask(path="/v2/models/m", headers=OURS)
    assert (inferred.status_code, inferred.json()["url"]) == (200, "/v2/models/m")
    assert shared.ask(path="/hello", headers=OURS).status_code == 200
    assert shared.ask({"auth": {"status": 401}}, headers=OURS).status_code == 401
    for path in ("/v1/probe", "/v2/models/m"):
        assert shared.ask({"auth": {"status": 401}}, path=path).json()["url"] == path
    shared.plugin.kill()
    for path in ("/v1/probe", "/v2/models/m"):
        refused = shared.ask(path=path, headers=OURS)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert shared.ask(path=path).status_code == 200
