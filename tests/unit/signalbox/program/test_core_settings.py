"""Settings: read once, typed, and strict about what they do not know."""

from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta

from signalbox.program import nkeys
from signalbox.program.errors import Misconfigured
from signalbox.program.settings import Wire, declared, describe, load


class Program(Wire, frozen=True, kw_only=True):
    devices: Annotated[tuple[str, ...], Meta(description="Devices.")] = ("cpu:0",)
    is_warm: Annotated[bool, Meta(description="Warm.")] = True
    limit: Annotated[int, Meta(ge=1, description="Limit.")] = 8

    def problems(self):  # type: ignore[no-untyped-def]  # noqa: ANN201  as a program would
        yield from super().problems()
        if self.limit > 10 and not self.is_warm:
            yield "a limit above 10 needs SIGNALBOX_WORKER_IS_WARM"


PREFIX = "SIGNALBOX_WORKER_"


def test_records_are_kept_no_shorter_than_where_room_is_short() -> None:
    env = {"SIGNALBOX_RECORDS_KEPT_S": "300"}
    with pytest.raises(Misconfigured, match="must not be below SIGNALBOX_RESULTS_KEPT_S"):
        load(Program, PREFIX, env)
    kept = load(Program, PREFIX, env | {"SIGNALBOX_RESULTS_KEPT_S": "300"})
    assert kept.records_kept_s == 300.0


def test_a_key_has_its_name_from_its_seed_and_takes_the_place_of_a_password() -> None:
    seed = nkeys.mint()
    assert load(Program, PREFIX, {"SIGNALBOX_NATS_SEED": seed}).nats_user == nkeys.user(nkeys.public(seed))
    env = {"SIGNALBOX_NATS_SEED": "SU"}
    with pytest.raises(Misconfigured, match="no seed of a NATS user"):
        load(Program, PREFIX, env)
    named = {**env, "SIGNALBOX_NATS_USER": "host-aaaaaaaa"}
    with pytest.raises(Misconfigured, match="not both"):
        load(Program, PREFIX, {**named, "SIGNALBOX_NATS_PASSWORD": "x"})
    assert "SIGNALBOX_NATS_SEED=(set)" in describe(load(Program, PREFIX, named), PREFIX)


def test_inherited_fields_are_shared_and_own_fields_have_the_programs_prefix() -> None:
    env = {"SIGNALBOX_NATS_URL": "nats://n:1", f"{PREFIX}DEVICES": "cpu:0, cpu:1"}
    settings = load(Program, PREFIX, env)
    assert settings.nats_url == "nats://n:1"
    assert settings.devices == ("cpu:0", "cpu:1")


@pytest.mark.parametrize(("text", "value"), [("on", True), ("False", False), ("1", True), ("no", False)])
def test_a_boolean_may_be_written_in_any_usual_way(text: str, value: bool) -> None:
    assert load(Program, PREFIX, {f"{PREFIX}IS_WARM": text}).is_warm is value


def test_a_misspelt_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(Misconfigured, match="did you mean SIGNALBOX_WORKER_DEVICES"):
        load(Program, PREFIX, {f"{PREFIX}DEVICE": "cpu:0"})


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(Misconfigured) as refused:
        load(Program, PREFIX, {f"{PREFIX}LIMIT": "0", "SIGNALBOX_LOG_LEVEL": "LOUD"})
    text = refused.value.public_message
    assert "SIGNALBOX_WORKER_LIMIT: Expected `int` >= 1" in text
    assert "SIGNALBOX_LOG_LEVEL" in text


def test_another_programs_variables_and_foreign_ones_are_left_alone() -> None:
    load(Program, PREFIX, {"SIGNALBOX_GATEWAY_LISTEN": "x", "PATH": "/", "SIGNALBOX_TYK_BIN": "t"})


def test_rules_that_span_fields_are_checked() -> None:
    with pytest.raises(Misconfigured, match="a limit above 10 needs"):
        load(Program, PREFIX, {f"{PREFIX}LIMIT": "11", f"{PREFIX}IS_WARM": "off"})


def test_a_secret_comes_from_a_file_and_is_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "pepper"
    secret.write_text("very secret\n", encoding="utf-8")
    settings = load(Wire, "SIGNALBOX_", {"SIGNALBOX_KEY_PEPPER_FILE": str(secret)})
    assert settings.key_pepper == "very secret"
    assert "very secret" not in describe(settings, "SIGNALBOX_")
    assert "SIGNALBOX_KEY_PEPPER=(set)" in describe(settings, "SIGNALBOX_")


def test_a_variable_and_its_file_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("a", encoding="utf-8")
    env = {"SIGNALBOX_KEY_PEPPER": "b", "SIGNALBOX_KEY_PEPPER_FILE": str(tmp_path / "p")}
    with pytest.raises(Misconfigured):
        load(Wire, "SIGNALBOX_", env)


def test_a_missing_secret_file_is_named_by_its_variable() -> None:
    with pytest.raises(Misconfigured, match="SIGNALBOX_KEY_PEPPER: the secret cannot be read"):
        load(Wire, "SIGNALBOX_", {"SIGNALBOX_KEY_PEPPER_FILE": "/nowhere"})


def test_every_setting_has_a_description() -> None:
    assert [s.name for s in declared(Wire, "SIGNALBOX_") if not s.description] == []


@pytest.mark.parametrize(
    "url", ["nats://a:1,nats://b:2", "tls://a", "127.0.0.1", "a:4222", "nats://user:word@a:1", "nats://[::1]:1 , b"]
)
def test_addresses_of_nats_that_it_can_use_are_taken(url: str) -> None:
    assert load(Wire, "SIGNALBOX_", {"SIGNALBOX_NATS_URL": url}).nats_url == url


@pytest.mark.parametrize(
    "url",
    ["", " ", "nats://a:b", "nats://a:-1", "nats://a:70000", "nats://", "http://a", "nats://a,", "nats://u:se/cret@a"],
)
def test_an_address_of_nats_that_nobody_can_read_is_refused_by_name_and_not_repeated(url: str) -> None:
    with pytest.raises(Misconfigured, match="SIGNALBOX_NATS_URL wants addresses like nats://host") as caught:
        load(Wire, "SIGNALBOX_", {"SIGNALBOX_NATS_URL": url})
    assert "cret" not in str(caught.value)
