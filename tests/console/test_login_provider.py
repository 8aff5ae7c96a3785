"""Providers that answer otherwise than they should: too much, too slowly, something else, signed by somebody else."""

import base64
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey
from msgspec.structs import replace

from console.config import ConsoleSettings, is_trusted_url
from console.operators import provider
from console.operators.provider import Attempt, Provider
from signalbox.program.errors import Forbidden, Misconfigured, Unavailable
from signalbox.program.settings import load

CLIENT, SECRET = "signalbox", "a secret that is long enough for a signature"
ATTEMPT = Attempt("http://testserver/login/signed-on", "state", "nonce", "v" * 64, again=False, began=0)


class Odd(ThreadingHTTPServer):
    """A provider whose every answer a test chooses: a body, or a function that makes one."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.key = ECKey.generate_key("P-256", {"kid": "1"})
        self.keys = [self.key]
        self.asked: list[str] = []
        self.sent: dict[str, str] = {}
        self.posted: dict[str, str] = {}
        self.form = ""
        self.document: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }
        self.answers: dict[str, Any] = {
            "/.well-known/openid-configuration": lambda: self.document,
            "/keys": lambda: {"keys": [key.as_dict(private=False) for key in self.keys]},
            "/token": lambda: {"access_token": "a", "token_type": "Bearer", "id_token": self.signed()},
        }

    def signed(self, header: dict[str, Any] | None = None, key: Any = None, **claims: Any) -> str:
        """An ID token that is right but for what is given."""
        now = int(time.time())
        right = {"iss": self.issuer, "aud": CLIENT, "sub": "1", "iat": now, "exp": now + 60, "nonce": "nonce"}
        named = {"preferred_username": "anna", "groups": ["sre"]}
        header = header or {"alg": "ES256", "kid": "1"}
        return jwt.encode(header, right | named | claims, key or self.key, algorithms=[header["alg"]])


class _Answers(BaseHTTPRequestHandler):
    server: Odd

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.sent = dict(self.headers)
        answer = self.server.answers.get(self.path)
        found = answer() if callable(answer) else answer
        self.send_response(found if isinstance(found, int) else 200)
        self.send_header("Location", f"{self.server.issuer}/keys")
        self.end_headers()
        if not isinstance(found, int):
            self.wfile.write(found if isinstance(found, bytes) else json.dumps(found).encode())

    def do_POST(self) -> None:
        self.server.posted = dict(self.headers)
        self.server.form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def odd() -> Iterator[Odd]:
    with Odd() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def asking(odd: Odd, console: ConsoleSettings) -> Provider:
    return Provider(
        replace(
            console, oidc_issuer=odd.issuer, oidc_client_id=CLIENT, oidc_client_secret=SECRET, oidc_roles=("a=admin",)
        )
    )


def test_a_right_answer_is_taken_and_document_and_keys_are_read_once(odd: Odd, asking: Provider) -> None:
    for _ in range(2):
        assert asking.address(ATTEMPT).startswith(f"{odd.issuer}/authorize?")
        assert asking.claims(ATTEMPT, "code")["sub"] == "1"
    assert sorted(odd.asked) == ["/.well-known/openid-configuration", "/keys", "/token", "/token"]
    assert odd.posted["Authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("secret", "methods", "is_basic", "is_posted"),
    [
        (SECRET, None, True, False),
        (SECRET, ["client_secret_post"], False, True),
        (SECRET, ["client_secret_post", "client_secret_basic"], True, False),
        ("", ["none"], False, False),
    ],
)
def test_the_console_says_who_it_is_as_the_provider_asks(
    odd: Odd, console: ConsoleSettings, secret: str, methods: list[str] | None, is_basic: bool, is_posted: bool
) -> None:
    if methods is not None:
        odd.document["token_endpoint_auth_methods_supported"] = methods
    config = replace(console, oidc_issuer=odd.issuer, oidc_client_id=CLIENT, oidc_client_secret=secret)
    Provider(config).claims(ATTEMPT, "code")
    form = dict(parse_qsl(odd.form))
    assert ("Authorization" in odd.posted, "client_secret" in form) == (is_basic, is_posted)
    assert form.get("client_id") == (None if is_basic else CLIENT)
    assert form["code_verifier"] == ATTEMPT.verifier


@pytest.mark.parametrize(
    "answer", [b"x" * 2 * 1024 * 1024, b"no json", b"[1]", b"\xff", 500, 404, 302, b'"' + b"[" * 100_000]
)
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys"])
def test_what_cannot_be_read_is_a_provider_that_is_away(odd: Odd, asking: Provider, path: str, answer: Any) -> None:
    odd.answers[path] = answer
    with pytest.raises(Unavailable):
        asking.claims(ATTEMPT, "code")
    asked = len(odd.asked)
    with pytest.raises(Unavailable):
        asking.claims(ATTEMPT, "code")
    assert len(odd.asked) == asked, "for some seconds it is not asked again"


@pytest.mark.parametrize(
    "answer", [b"x" * 2 * 1024 * 1024, b"no json", b"[]", 500, 302, {"error": "invalid_grant"}, {}]
)
def test_a_token_answer_that_is_none_is_refused(odd: Odd, asking: Provider, answer: Any) -> None:
    odd.answers["/token"] = answer
    with pytest.raises((Unavailable, Forbidden)):
        asking.claims(ATTEMPT, "code")
    assert answer == {} or "/keys" not in odd.asked, "no redirect is followed"


def test_an_answer_that_drips_ends(odd: Odd, asking: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_ANSWER_S", 0.0)  # the first byte comes too late

    with pytest.raises(Unavailable):
        asking.address(ATTEMPT)


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize("url", ["http://idp.example/x", "ftp://127.0.0.1/x", "", None, 7, "https://", "https://u@h/"])
def test_addresses_that_others_could_read_are_refused(odd: Odd, asking: Provider, name: str, url: Any) -> None:
    odd.document[name] = url

    def signs_on() -> None:
        asking.address(ATTEMPT)
        asking.claims(ATTEMPT, "code")

    with pytest.raises(Unavailable, match=name):
        signs_on()


def test_a_token_that_nobody_or_the_clients_secret_or_another_key_signed_is_refused(odd: Odd, asking: Provider) -> None:
    another = ECKey.generate_key("P-256")
    header, body, _ = odd.signed().split(".")
    confused = _part(b'{"alg":"HS256","kid":"1"}') + "." + body  # the public key taken for a secret
    mac = hmac.new(odd.key.as_pem(private=False), confused.encode(), "sha256").digest()
    for token in (
        odd.signed(key=another),
        odd.signed({"alg": "HS256"}, OctKey.import_key(SECRET)),
        f"{confused}.{_part(mac)}",
        f"{'eyJhbGciOiJub25lIn0'}.{body}.",
        f"{header}.{body}.",
        "",
        "a.b.c",
    ):
        odd.answers["/token"] = {"access_token": "a", "token_type": "Bearer", "id_token": token}
        with pytest.raises(Forbidden):
            asking.claims(ATTEMPT, "code")


def _part(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def test_new_keys_are_read_when_a_token_names_one(odd: Odd, asking: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    asking.claims(ATTEMPT, "code")
    odd.key = RSAKey.generate_key(2048, {"kid": "2"})  # type: ignore[assignment]
    odd.keys = [odd.keys[0], odd.key]
    odd.answers["/token"] = {
        "access_token": "a",
        "token_type": "Bearer",
        "id_token": odd.signed({"alg": "RS256", "kid": "2"}),
    }
    with pytest.raises(Forbidden):
        asking.claims(ATTEMPT, "code")  # they were read seconds ago: a flood of odd tokens reads nothing
    monkeypatch.setattr(provider, "_AWAY_S", 0.0)
    assert asking.claims(ATTEMPT, "code")["sub"] == "1"


def test_what_the_token_does_not_say_is_asked_for_and_has_to_be_of_the_same_person(odd: Odd, asking: Provider) -> None:
    odd.document["userinfo_endpoint"] = f"{odd.issuer}/userinfo"
    token = odd.signed(groups=None)
    odd.answers["/token"] = {"access_token": "a", "token_type": "Bearer", "id_token": token}
    assert asking.claims(ATTEMPT, "code")["groups"] is None, "said, if only that there are none"
    claims = {"iss": odd.issuer, "aud": CLIENT, "sub": "1", "iat": 0, "exp": 4_000_000_000, "nonce": "nonce"}
    token = jwt.encode({"alg": "ES256", "kid": "1"}, claims, odd.key)
    odd.answers["/token"] = {"access_token": "a", "token_type": "Bearer", "id_token": token}
    odd.answers["/userinfo"] = {"sub": "1", "preferred_username": "anna", "groups": ["sre"], "aud": "odd"}
    assert asking.claims(ATTEMPT, "code")["groups"] == ["sre"]
    assert odd.sent["Authorization"] == "Bearer a"
    odd.answers["/userinfo"] = {"sub": "2", "groups": ["owners"]}
    with pytest.raises(Forbidden, match="two people"):
        asking.claims(ATTEMPT, "code")


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("https://id.example/realms/x", True),
        ("http://localhost:1/x", True),
        ("http://127.0.0.1", True),
        ("http://id.example", False),
        ("https://", False),
        ("https://u:p@id.example", False),
        ("https://id.example:x", False),
        ("https://id.example/#f", False),
        ("//id.example", False),
    ],
)
def test_which_addresses_are_trusted(url: str, is_one: bool) -> None:
    assert is_trusted_url(url) is is_one


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ISSUER", "http://id.example", "https://"),
        ("CLIENT_ID", "", "the id"),
        ("ROLES", "", "nobody"),
        ("ROLES", "sre=boss", "no value=role"),
        ("ROLES", "operator", "no value=role"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(name: str, value: str, words: str) -> None:
    env = {"ISSUER": "https://id.example", "CLIENT_ID": "x", "ROLES": "sre=operator,ml=model manager"}
    named = {f"SIGNALBOX_CONSOLE_OIDC_{one}": text for one, text in (env | {name: value}).items()}
    with pytest.raises(Misconfigured, match=words) as refused:
        load(ConsoleSettings, "SIGNALBOX_CONSOLE_", named)
    assert f"OIDC_{name}" in str(refused.value)
