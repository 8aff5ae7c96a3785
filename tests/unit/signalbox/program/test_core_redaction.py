"""What looks like a secret, was given as one or stands behind the name of one does not get into a log line."""

import json
import logging
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.program import keys, log, redaction, settings
from signalbox.program.redaction import HIDDEN, redact
from tests.rigs.canaries import canary, leaks, shapes

SECRET = "f00dbabe" * 5


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    known = redaction._known.copy()
    yield
    root.handlers, root.level = before
    log._render_as_json("INFO")
    redaction._known.clear()
    redaction._known.update(known)


def test_an_api_key_leaves_its_public_id_behind() -> None:
    text, kid = keys.mint()
    assert redact(f"refused {text} at once") == f"refused sbx_live_{kid}_{HIDDEN} at once"
    assert redact(f'{{"k":"{text}","again":"{text}"}}').count(HIDDEN) == 2


def test_what_only_looks_like_a_key_is_left_alone() -> None:
    text, _ = keys.mint()
    broken = text[:-1] + ("0" if text[-1] != "0" else "1")
    assert redact(broken) == broken


def test_an_operator_s_token_is_hidden() -> None:
    text = "sbo_abcdefghijkl_" + "x" * 43
    assert redact(f"Bearer {text}!") == f"Bearer sbo_abcdefghijkl_{HIDDEN}!"


def test_a_token_of_events_is_hidden_but_for_its_key() -> None:
    text = "sbe_abcDEF012345_1795933919_" + "x-_" * 14 + "y"
    assert redact(f"GET /v1/jobs/1/events?token={text} 200") == (
        f"GET /v1/jobs/1/events?token=sbe_abcDEF012345_1795933919_{HIDDEN} 200"
    )


@pytest.mark.parametrize(
    "line",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization: basic {SECRET}",
        f'{{"Authorization": "Bearer {SECRET}"}}',
        f'{{\\"Idempotency-Key\\": \\"{SECRET}\\"}}',
        f"idempotency-key={SECRET}",
        f"(b'idempotency-key', b'{SECRET}')",
        f"[('Cookie', '{SECRET}')]",
        f"password={SECRET} host=db",
        f"PASSWORD: {SECRET}",
        f"x-api-key: {SECRET}",
        f"nats://gateway:{SECRET}@nats-1:4222",
        f"postgresql://signalbox:{SECRET}@db/signalbox",
    ],
)
def test_a_value_behind_the_name_of_a_secret_is_hidden(line: str) -> None:
    assert SECRET not in redact(line)
    assert HIDDEN in redact(line)


@pytest.mark.parametrize(
    "line",
    [
        '{"event":"lease.acquired","token":7,"gpu":"GPU-1"}',
        '{"event":"act.done","act":"keys.manage","kind":"key","target":"abc"}',
        "The API key is malformed: check that it was copied whole.",
        '{"error":"NATS refuses the user or the password."}',
        "nats://127.0.0.1:4222 is away",
    ],
)
def test_ordinary_lines_stay_as_they_are(line: str) -> None:
    assert redact(line) == line


@given(st.text(max_size=200))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)


def test_secrets_of_the_settings_are_known_before_the_first_line_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    pepper, password = canary("pepper"), canary("password")
    env = {"SIGNALBOX_KEY_PEPPER": pepper, "SIGNALBOX_NATS_PASSWORD": password}
    settings.load(settings.Wire, settings.PREFIX, env)
    log.configure("INFO", program="x")
    log.info("odd.line", reason=f"got {pepper}", where={"a": [password]})
    try:
        raise ValueError(f"cannot use {password!r}")
    except ValueError:
        log.exception("odd.failure")
    logging.getLogger("library").error("sent %s", {"x": pepper})
    written = capsys.readouterr().err
    assert leaks({"stderr": written}, {"pepper": pepper, "password": password}) == []
    assert written.count(HIDDEN) >= 5
    for line in written.splitlines():
        msgspec.json.decode(line)


def test_fields_that_hold_payloads_are_never_written(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("INFO", program="x")
    log.info("job.refused", body=b"precious", inputs={"x": [1.5]}, password="hunter22", job_id="j1")
    line = msgspec.json.decode(capsys.readouterr().err)
    assert (line["body"], line["inputs"], line["password"]) == (HIDDEN, HIDDEN, HIDDEN)
    assert line["job_id"] == "j1"


def test_the_last_words_of_a_program_are_redacted_too(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    before = sys.excepthook
    redaction.know(SECRET)
    log.configure("INFO", program="x")
    try:
        sys.excepthook(RuntimeError, RuntimeError(f"no {SECRET}"), None)
        line = msgspec.json.decode(capsys.readouterr().err)
        assert line["event"] == "program.crashed"
        assert line["error"] == f"RuntimeError: no {HIDDEN}"
    finally:
        sys.excepthook = before


@given(st.binary(max_size=7), st.binary(max_size=7))
def test_a_leak_is_found_in_every_shape_it_may_take(before: bytes, after: bytes) -> None:
    import base64

    secret = "canary-é-0123456789"
    wrapped = before + secret.encode() + after
    seen = [
        wrapped.decode("utf-8", "replace"),
        base64.b64encode(wrapped).decode(),
        wrapped.hex(),
        json.dumps({"x": secret}),
        repr(list(wrapped)),
    ]
    for text in seen:
        assert leaks({"log": text}, {"it": secret}), text
    assert leaks({"log": "nothing here"}, {"it": secret}) == []
    assert len(shapes(secret)) >= 6
