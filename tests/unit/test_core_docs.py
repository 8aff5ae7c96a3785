"""Pages made from code say what the code says."""

import importlib
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from signalbox.program.errors import MEANINGS
from signalbox.program.metrics import REGISTRY
from signalbox.wire import assets, names, roles

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate.py"))["PAGES"]  # type: ignore[no-any-return]  # a script


@pytest.mark.parametrize("page", ["settings.md", "errors.md"])
def test_a_made_page_is_as_the_code_makes_it(made: dict[str, Any], page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == made[page]() + "\n", "run: python docs/generate.py"


def test_every_error_code_has_its_line() -> None:
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert [code for code in MEANINGS if f"| `{code}` |" not in text] == []


def test_every_stream_bucket_header_and_role_is_on_the_wire_page() -> None:
    text = (DOCS / "wire.md").read_text(encoding="utf-8")
    wanted = [config["name"] for config in assets.STREAMS if not config["name"].startswith("KV_")]
    wanted += [bucket.value for bucket in names.Bucket]
    wanted += [names.Header.JOB.value, names.Header.RECORD.value, *roles.ROLES]
    assert [name for name in wanted if f"`{name}`" not in text] == []


def test_every_metric_of_an_alarm_is_one_that_a_program_serves() -> None:
    for module in (
        "console.operators.throttle", "console.programs.management.commands.serve", "console.controller.storage",
        "console.live.origin",
        "gateway_plugin.hooks.dispatcher", "gateway_plugin.admission.room",
        "signalbox.program.looplag", "signalbox.bus.stalls", "workers.host.gauges",
    ):  # fmt: skip
        importlib.import_module(module)
    served = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in REGISTRY.collect()
    }
    rules = (DOCS / "operations.md").read_text("utf-8").partition("```yaml")[2].partition("```")[0]
    wanted = re.findall(r"signalbox_\w+", rules)
    assert len(wanted) > 7
    assert [name for name in wanted if name not in served] == []
