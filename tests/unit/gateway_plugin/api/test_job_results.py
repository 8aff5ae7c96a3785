"""In which form a result is asked for."""

import pytest

from gateway_plugin.api.jobs.results import Form, form_of, is_known
from gateway_plugin.request import Request


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Form.JSON),
        ("*/*", Form.JSON),
        ("text/html, image/*;q=0.5", Form.JSON),
        ("application/x-npz", Form.NPZ),
        ("Application/ZIP;q=0.5", Form.ZIP),
        ("application/json;q=0.2, application/octet-stream; q=0.8", Form.TENSORS),
        ("application/x-npz, application/json", Form.NPZ),
        ("application/x-npz;q=0", Form.JSON),
        ("application/x-npz;q=nan, application/json", Form.NPZ),
    ],
)
def test_the_form_with_the_highest_weight_is_given_and_json_where_none_is_known(accept: str, form: Form) -> None:
    assert form_of(accept) is form


@pytest.mark.parametrize(
    ("header", "known"),
    [("", False), ('"a"', True), ('W/"a"', True), ('"b", W/"a"', True), ("*", True), ('"b"', False)],
)
def test_an_entity_tag_is_known_in_any_of_its_spellings(header: str, known: bool) -> None:
    assert is_known(Request("GET", "/", {"If-None-Match": header}, b""), 'W/"a"') is known
