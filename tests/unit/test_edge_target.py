"""Request targets as Tyk shows them. What a real Tyk answered stands in tests/conformance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.edge.target import Redirect, RequestTarget, parameters, read


@pytest.mark.parametrize(
    ("path", "url"),
    [
        (b"/", "/"),
        (b"/v1/models/m:predict", "/v1/models/m:predict"),
        (b"/v1/models/m/", "/v1/models/m/"),
        (b"/v1/a%2Fb", "/v1/a%2Fb"),
        (b"/v1/%ff", "/v1/%ff"),
        (b"/v1/(a)'b!*[c]$&+,;=:@-_.~", "/v1/(a)'b!*[c]$&+,;=:@-_.~"),
        (b"/v1/(a)'b!*[c]|x", "/v1/%28a%29%27b%21%2A%5Bc%5D%7Cx"),
        (b'/v1/"x"', "/v1/%22x%22"),
        (b"/v1/...", "/v1/..."),
        (b"/v1/.well-known", "/v1/.well-known"),
    ],
)
def test_clean_path_keeps_its_bytes_and_is_encoded_as_go_does(path: bytes, url: str) -> None:
    assert read(path, b"") == RequestTarget(url, path.decode())


def test_query_is_kept_as_it_is() -> None:
    assert read(b"/v1/x", b"a=%zz&b;c") == RequestTarget("/v1/x?a=%zz&b;c", "/v1/x?a=%zz&b;c")


@pytest.mark.parametrize(
    ("path", "location"),
    [
        (b"//", "/"),
        (b"//v1//x", "/v1/x"),
        (b"/v1/../x", "/x"),
        (b"/../x", "/x"),
        (b"/v1/x/.", "/v1/x"),
        (b"/v1/x/..", "/v1"),
        (b"/v1/./x/", "/v1/x/"),
        (b"/v1/%2e%2e/x%20y", "/x%20y"),
        (b"/v1/x%2f%2Fy", "/v1/x/y"),
    ],
)
def test_unclean_path_is_redirected(path: bytes, location: str) -> None:
    assert read(path, b"") == Redirect(location)
    assert read(path, b"q=//") == Redirect(location + "?q=//")


@pytest.mark.parametrize("path", [b"/v1/%zz", b"/v1/%", b"*", b""])
def test_what_go_refuses_is_no_target(path: bytes) -> None:
    assert read(path, b"") is None


@given(st.binary(max_size=40))
def test_redirects_lead_to_a_path_that_is_clean(tail: bytes) -> None:
    found = read(b"/" + tail, b"")
    if isinstance(found, Redirect):
        assert isinstance(read(found.location.encode(), b""), RequestTarget)


def test_first_value_of_each_parameter_counts() -> None:
    assert parameters("a=1&a=2&b=x+y%21&c&=d&e;f=1&g=%zz&h=%C3%A9&") == {
        "a": "1",
        "b": "x y!",
        "c": "",
        "": "d",
        "h": "é",
    }


def test_what_is_not_utf8_is_no_target_and_nothing_of_a_parameter() -> None:
    assert read(b"/v1/\xe9", b"") is read(b"/v1/x", b"q=\xff") is None
    assert isinstance(read(b"/v1/x", b"q=%ff"), RequestTarget)
    assert parameters("q=%ff&a=1") == {"q": "\ufffd", "a": "1"}
