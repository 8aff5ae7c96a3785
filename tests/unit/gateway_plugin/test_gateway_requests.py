"""Names and values of header lines."""

from gateway_plugin import request
from gateway_plugin.request import canonical, headers_of


def test_names_take_go_s_form() -> None:
    assert canonical(b"x-api-key") == "X-Api-Key"
    assert canonical(b"X_ODD-name") == "X_odd-Name"
    assert canonical(b"x-a1b") == "X-A1b"


def test_names_without_bound_are_not_remembered() -> None:
    names = [b"x-%d-" % number + b"a" * 61 for number in range(3)]
    assert canonical(names[0]) == "X-0-A" + "a" * 60
    assert headers_of((name, b"1") for name in names).keys() == set(map(canonical, names))
    assert canonical(b"x-short") == "X-Short"
    assert b"x-short" in request._canonical_names
    assert not request._canonical_names.keys() & set(names)


def test_first_value_counts_and_padding_goes() -> None:
    assert headers_of([(b"x-a", b"1 \t"), (b"X-A", b"2")]) == {"X-A": "1"}


def test_a_value_that_is_not_utf8_is_latin_1_and_no_fault() -> None:
    lines = [
        (b"x-a", b"caf\xe9 "),
        (b"x-b", "café".encode()),
        (b"x-forwarded-for", b"\xff"),
        (b"X-Forwarded-For", b"1"),
    ]
    assert headers_of(lines) == {"X-A": "café", "X-B": "café", "X-Forwarded-For": "ÿ, 1"}


def test_all_lines_of_forwarded_addresses_count() -> None:
    lines = [(b"x-forwarded-for", b"10.0.0.1"), (b"host", b"h"), (b"X-Forwarded-For", b"5.6.7.8, 9.9.9.9")]
    assert headers_of(lines)["X-Forwarded-For"] == "10.0.0.1, 5.6.7.8, 9.9.9.9"
