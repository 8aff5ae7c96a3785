"""What a call of a queue says, and what is refused with its cause and mend."""

import math
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.api.queues import parameters
from gateway_plugin.api.queues.parameters import Call, Verb
from gateway_plugin.api.queues.paths import Address, address_of, is_of_queues, may_be_watch
from gateway_plugin.request import Request
from signalbox.program.errors import InvalidRequest, MethodNotAllowed, NotFound


def call(method: str, query: str = "", **headers: str) -> Call:
    request = Request(method, f"/v1/queues/chat?{query}", headers, b"")
    return parameters.call_of(request, parameters.query_of(request))


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/api/predict/chat", Address("chat", "source", is_queue=False)),
        ("/api/predict/chat/sink", Address("chat", "sink", is_queue=True)),
        ("/v1/queues/a.b-c_1", Address("a.b-c_1", "source", is_queue=True)),
        ("/v1/queues/chat/sink", Address("chat", "sink", is_queue=True)),
        ("/v1/queues/chat/", Address("chat", "source", is_queue=True)),
    ],
)
def test_a_path_names_one_side_of_a_queue(path: str, address: Address) -> None:
    assert is_of_queues(path)
    assert address_of(path) == address


@pytest.mark.parametrize(
    "path", ["/api/predict/", "/api/predict/a/b", "/v1/queues/.a", "/v1/queues/a%2Fb", f"/v1/queues/{'a' * 101}"]
)
def test_other_paths_are_nobodys(path: str) -> None:
    with pytest.raises(NotFound, match="/v1/queues/<name>"):
        address_of(path)


@pytest.mark.parametrize(
    ("method", "query", "verb"),
    [
        ("POST", "", Verb.PUT),
        ("POST", "_eos_=true", Verb.END),
        ("POST", "_eos_=false", Verb.PUT),
        ("GET", "", Verb.GET),
        ("GET", "_watch_=true", Verb.WATCH),
        ("GET", "_attrs_=true", Verb.ATTRIBUTES),
        ("GET", "_search_=TRUE&_index_=3", Verb.SEARCH),
        ("GET", "_count_=1", Verb.COUNT),
        ("PUT", "_indexes_=1", Verb.COMMIT),
        ("DELETE", "_indexes_=1", Verb.DELETE),
        ("DELETE", "_index_=3&_trunc_=true", Verb.TRUNCATE),
        ("DELETE", "_forget_=true", Verb.FORGET),
    ],
)
def test_method_and_flags_say_the_verb(method: str, query: str, verb: Verb) -> None:
    assert call(method, query).verb is verb


def test_what_has_no_underscores_is_a_tag() -> None:
    found = call("POST", "_priority_=1&kind=cat&who=%C3%A9+x")
    assert found.tags == {"kind": "cat", "who": "é x"}
    assert parameters.is_high(found, {}) is True


@pytest.mark.parametrize(
    ("method", "query", "said"),
    [
        ("POST", "_other_=1", "_other_ is no parameter of put"),
        ("POST", "_x=1", "no tag begins with _"),
        ("POST", "a=1&a=2", "a is said twice"),
        ("POST", "1=2", "must begin with a letter"),
        ("POST", "a=" + "x" * 257, "more than 256 bytes"),
        ("POST", "&".join(f"a{n}=1" for n in range(65)), "at most 64 parameters"),
        ("POST", "a=" + "x" * 40_000, "at most 32768 characters"),
        ("POST", "a=%ff", "must be UTF-8"),
        ("POST", "_eos_=perhaps", "_eos_ must be true or false"),
        ("GET", "_watch_=true&_length_=3", "_length_ is no parameter of watch"),
        ("PUT", "_indexes_=1&a=b", "commit takes no tags"),
        ("DELETE", "_forget_=true&_indexes_=1", "_indexes_ is no parameter of forget"),
    ],
)
def test_what_a_verb_does_not_take_is_refused_by_name(method: str, query: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        call(method, query)
    assert said in refused.value.public_message


def test_another_method_is_told_which_there_are() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        call("PATCH")
    assert refused.value.facts["allow"] == "POST, GET, PUT, DELETE"


def test_indexes_are_numbers_each_once() -> None:
    assert call("PUT", "_indexes_=3%2C1,3").indexes() == (3, 1)


@pytest.mark.parametrize("text", ["", "0", "-1", "1,", "x", "1.5", "9" * 20, ",".join(["1"] * 1001)])
def test_other_indexes_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="_indexes_"):
        call("PUT", f"_indexes_={text}").indexes()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5), ("0", 0), ("500ms", 0.5), ("1m30s", 90), ("1.5h", 5400), ("7", 7), ("1s5", 6), ("3us", 3e-6)],
)
def test_a_time_is_one_of_go_s_or_seconds(text: str, seconds: float) -> None:
    assert math.isclose(parameters.duration_s(text), seconds)


@pytest.mark.parametrize("text", ["", "s", "-1s", "5 s", "5d", "1e9", "5s" * 11, "nan", "٣s"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="_timeout_"):
        parameters.duration_s(text)


@pytest.mark.parametrize("code", ["Shutdown", "OutOfMemory", "404", "A"])
def test_a_code_is_words_in_camel_case_or_digits(code: str) -> None:
    assert parameters.code_of(code) == code


@pytest.mark.parametrize("code", ["", "shutdown", "Two Words", "A" * 21, "4a", "Ünicode"])
def test_other_codes_are_refused(code: str) -> None:
    with pytest.raises(InvalidRequest, match="_code_"):
        parameters.code_of(code)


def test_a_header_or_a_parameter_in_underscores_says_that_a_queue_is_meant() -> None:
    assert parameters.says_queue({parameters.USER: "u"}, [])
    assert parameters.says_queue({}, [("_priority_", "1")])
    assert not parameters.says_queue({parameters.GROUP: "g"}, [("a", "1"), ("_x", "1")])


WATCH_HEAD = b"GET /v1/queues/chat?_watch_=true HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "is_good"),
    [
        (WATCH_HEAD, True),
        (WATCH_HEAD.replace(b"/v1/queues", b"/api/predict"), True),
        (WATCH_HEAD.replace(b"/v1/queues", b"/v1/jobs"), False),
        (WATCH_HEAD.replace(b"GET /", b"GET http://x/"), False),
        (WATCH_HEAD.replace(b"Host: x", b"Host: x\r\nX-A: \xff"), False),
        (WATCH_HEAD.replace(b"Host: x", b"Host: x\r\nX-A: " + b"a" * 8000), False),
        (WATCH_HEAD.replace(b"Host: x", b"Host: x\r\ncontent-length: 00"), False),
    ],
)
def test_what_the_server_s_library_cannot_read_becomes_no_websocket(head: bytes, is_good: bool) -> None:
    assert may_be_watch(head) == is_good


QUERIES = st.lists(
    st.tuples(
        st.sampled_from([*sorted(set().union(*parameters._KNOWN.values())), "a", "requestId", ""]),
        st.one_of(st.text(max_size=30), st.sampled_from(["true", "1", "-1", "5s", "1,2", "9" * 30])),
    ),
    max_size=6,
)


@given(st.sampled_from(["GET", "POST", "PUT", "DELETE"]), QUERIES)
def test_whatever_is_said_is_read_or_refused(method: str, pairs: list[tuple[str, str]]) -> None:
    try:
        found = call(method, urlencode(pairs, errors="replace"))
        reads: list[Any] = [found.indexes, found.timeout_s, found.index]
        for read in reads:
            try:
                read()
            except InvalidRequest:
                continue
    except InvalidRequest:
        return
