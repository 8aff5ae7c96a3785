"""What a listing of a repository means for the versions that are registered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.noticing import fingerprints
from console.noticing.plan import Key, Known, KnownVersion, Plan, Refusal, Seen, Terms, decide
from signalbox.repositories.entry import Entry
from signalbox.repositories.layouts import MOST_VERSIONS, Found, FoundModel
from signalbox.repositories.version import FoundVersion
from signalbox.wire.manifests import ManifestFile

RULES = "r" * 64
SETTLED = Terms("", 0.0, 3600.0, RULES)
NOW = 1_000_000.0


def files(etag: str = "a", size: int = 10) -> tuple[ManifestFile, ...]:
    """Of a version."""
    return ManifestFile("saved_model.pb", size, etag), ManifestFile("variables/variables.index", 5, "i")


def version(
    number: int = 1,
    etag: str = "a",
    *,
    size: int = 10,
    missing: tuple[str, ...] = (),
    is_marked: bool = False,
) -> FoundVersion:
    """One as a listing has it."""
    have = files(etag, size)
    return FoundVersion(f"m/{number}", have, have[0], missing, is_marked)


def found(versions: dict[int, FoundVersion], name: str = "m", config: Entry | None = None) -> Found:
    """A listing with one model."""
    return Found({name: FoundModel(name, "triton" if config else "serving", versions, config)}, {})


def row(etag: str = "a", size: int = 10, **values: object) -> KnownVersion:
    """A registered version."""
    return KnownVersion(fingerprints.of(files(etag, size)), RULES)._replace(**values)  # type: ignore[arg-type]


def plan(
    listed: Found,
    rows: dict[int, KnownVersion] | None = None,
    *,
    seen: dict[Key, Seen] | None = None,
    refused: dict[Key, tuple[str, Refusal]] | None = None,
    terms: Terms = SETTLED,
    now: float = NOW,
    is_accepted: bool = False,
    config: str = "",
) -> Plan:
    """Decided for a repository with the model ``m``. config: fingerprint of the ``config.pbtxt`` that was read."""
    known = Known({"m": rows} if rows else {}, {"theirs": "theirs is a model of people."}, configs={"m": config})
    return decide(listed, known, seen or {}, refused or {}, terms, now=now, is_accepted=is_accepted)


def registered(made: Plan) -> list[int]:
    """Numbers of the versions that are registered."""
    return [step.number for step in made.register]


def test_without_a_marker_a_version_is_whole_when_its_files_were_equal_for_the_settle_time() -> None:
    terms = SETTLED._replace(settle_s=20.0)
    first = plan(found({1: version()}), terms=terms)
    assert (registered(first), first.waiting) == ([], 1)
    grown = plan(found({1: version(etag="b")}), seen=first.seen, terms=terms, now=NOW + 15)
    assert grown.waiting == 1
    early = plan(found({1: version(etag="b")}), seen=grown.seen, terms=terms, now=NOW + 30)
    assert registered(early) == []
    assert registered(plan(found({1: version(etag="b")}), seen=early.seen, terms=terms, now=NOW + 35)) == [1]


def test_with_a_marker_a_version_is_whole_when_it_has_it() -> None:
    terms = SETTLED._replace(marker="done", settle_s=3600.0)
    assert registered(plan(found({1: version(), 2: version(2, is_marked=True)}), terms=terms)) == [2]


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_version_lacking_files_that_others_promise_is_not_whole_and_says_so_once_it_has_settled(
    is_marked: bool,
) -> None:
    lacking = version(missing=("variables/variables.data-00000-of-00001",), is_marked=is_marked)
    made = plan(found({1: lacking}), terms=SETTLED._replace(marker="done" if is_marked else ""))
    assert (registered(made), made.waiting) == ([], 1)
    assert made.refused["m/1"].why == "Not all files are there: variables/variables.data-00000-of-00001."
    waits = plan(found({1: lacking}), terms=SETTLED._replace(settle_s=20.0))
    assert (waits.refused, waits.waiting) == ({}, 1)


def test_the_name_of_another_owner_is_refused_by_name() -> None:
    made = plan(found({1: version(), 2: version(2)}, "theirs"))
    assert registered(made) == []
    assert made.refused == {
        "theirs": Refusal("name", "theirs is a model of people. Rename the model in the repository.")
    }


def test_what_was_refused_is_not_tried_again_before_its_files_change() -> None:
    why = Refusal("graph", "It is damaged.")
    known = {("m", 1): (fingerprints.of(files()), why)}
    made = plan(found({1: version()}), refused=known)
    assert (registered(made), made.refused) == ([], {"m/1": why})
    assert registered(plan(found({1: version(etag="b")}), refused=known)) == [1]


def test_a_changed_config_is_read_with_the_newest_known_version_and_a_refused_one_not_again() -> None:
    config = Entry("m/config.pbtxt", 5, "a")
    listed, rows = found({1: version(), 2: version(2), 3: version(3)}, config=config), {1: row(), 2: row()}
    made = plan(listed, rows)
    assert [(step.number, step.config) for step in made.configs] == [(2, config)]
    assert [(step.number, step.config) for step in made.register] == [(3, config)]
    assert plan(listed, rows, config=fingerprints.of_config(config)).configs == []
    why = Refusal("config", "It is no UTF-8.")
    refused = {("m", 2): (made.configs[0].stamp, why)}
    again = plan(listed, rows, refused=refused)
    assert (again.configs, again.refused) == ([], {"m/config.pbtxt": why})
    other = found(listed.models["m"].versions, config=Entry("m/config.pbtxt", 5, "b"))
    assert len(plan(other, rows, refused=refused).configs) == 1
    assert [step.config for step in plan(found({1: version()}), {1: row()}, config="was there").configs] == [None]


def test_a_version_that_never_loaded_is_registered_again_with_its_new_files() -> None:
    assert registered(plan(found({1: version(etag="b", size=11)}), {1: row()})) == [1]
    assert plan(found({1: version()}), {1: row()}) == Plan(seen={("m", 1): Seen(fingerprints.of(files()), NOW)})


def test_a_final_version_keeps_its_row_whatever_its_etags_are() -> None:
    same_sizes = plan(found({1: version(etag="b")}), {1: row(is_final=True)})
    assert (registered(same_sizes), [step.number for step in same_sizes.renew]) == ([], [1])
    assert same_sizes.refused == {}
    other = plan(found({1: version(etag="b", size=11)}), {1: row(is_final=True)})
    assert (registered(other), other.renew) == ([], [])
    assert other.refused["m/1"].kind == "changed"


def test_versions_judged_by_another_list_are_judged_again() -> None:
    made = plan(found({1: version(), 2: version(2)}), {1: row(rules="old"), 2: row()})
    assert [step.number for step in made.judge] == [1]


def test_what_has_vanished_is_withdrawn_after_the_grace_and_is_restored_when_it_is_back() -> None:
    left = {2: version(2)}
    gone = plan(found(left), {1: row(), 2: row()})
    assert (gone.missing, gone.withdraw, gone.alarm) == ([("m", 1)], {}, "")
    within = plan(found(left), {1: row(vanished_at=NOW - 3599), 2: row()})
    assert (within.missing, within.withdraw) == ([], {})
    assert plan(found(left), {1: row(vanished_at=NOW - 3600), 2: row()}).withdraw.keys() == {("m", 1)}
    withdrawn = row(vanished_at=NOW - 3600, is_withdrawn=True)
    assert plan(found(left), {1: withdrawn, 2: row()}).withdraw == {}
    assert plan(found({1: version(), **left}), {1: withdrawn, 2: row()}).restore == [("m", 1)]
    back = plan(found({1: version(etag="b"), **left}), {1: withdrawn._replace(is_final=True), 2: row()})
    assert (back.restore, [step.number for step in back.renew]) == ([("m", 1)], [1])


def test_nothing_is_withdrawn_of_a_model_whose_folder_could_not_be_listed() -> None:
    gap = Found({}, {"m": "A key cannot be listed."}, frozenset({"m"}))
    made = plan(gap, {1: row(), 2: row(vanished_at=NOW - 7200)}, now=NOW)
    assert (made.missing, made.withdraw, made.alarm) == ([], {}, ""), "nor is the listing in doubt"
    assert made.refused == {"m": Refusal("layout", "A key cannot be listed.")}


def test_of_more_versions_than_a_model_may_have_the_older_ones_go_at_once() -> None:
    numbers = range(2, 2 + MOST_VERSIONS)
    made = plan(found({number: version(number) for number in numbers}), {1: row(), **{n: row() for n in numbers[1:]}})
    assert made.withdraw == {("m", 1): f"A model has at most {MOST_VERSIONS} versions: the newest are served."}
    assert registered(made) == [2]


def test_a_listing_that_is_half_as_long_withdraws_nothing_until_an_operator_confirms_it() -> None:
    rows = {number: row(vanished_at=None if number < 6 else NOW - 9999) for number in range(1, 7)}
    assert plan(found({n: version(n) for n in (1, 2, 3)}), rows).alarm == ""
    doubted = plan(found({n: version(n) for n in (1, 2)}), rows)
    assert doubted.alarm.startswith("The listing has 2 versions, and 5 were there: nothing is withdrawn.")
    assert (doubted.missing, doubted.withdraw) == ([], {})
    confirmed = plan(found({n: version(n) for n in (1, 2)}), rows, is_accepted=True)
    assert (confirmed.alarm, len(confirmed.missing), list(confirmed.withdraw)) == ("", 3, [("m", 6)])


ROWS = st.builds(
    row,
    etag=st.sampled_from("ab"),
    is_final=st.booleans(),
    vanished_at=st.none() | st.floats(0, NOW),
    is_withdrawn=st.booleans(),
)


@given(st.dictionaries(st.integers(1, 40), ROWS), st.floats(0, 2 * NOW), st.integers(0, 40), st.booleans())
def test_a_listing_that_empties_withdraws_none(
    rows: dict[int, KnownVersion], now: float, others: int, is_half: bool
) -> None:
    served = [number for number, each in rows.items() if not each.is_gone]
    left = {number: version(number) for number in served[: (len(served) - 1) // 2]} if is_half else {}
    known = Known({"m": rows, **{f"n{n}": {1: row()} for n in range(others)}}, {})
    listed = found(left) if left else Found({}, {})
    made = decide(listed, known, {}, {}, SETTLED._replace(grace_s=0.0), now=now)
    if served or others:
        assert (made.missing, made.withdraw) == ([], {})
        assert made.alarm


@given(
    st.dictionaries(st.integers(1, 9), st.sampled_from("abc")),
    st.dictionaries(st.integers(1, 9), ROWS),
    st.floats(0, 100),
)
def test_a_plan_carried_out_leaves_nothing_to_do(
    listed: dict[int, str], rows: dict[int, KnownVersion], grace_s: float
) -> None:
    at = found({number: version(number, etag) for number, etag in listed.items()})
    terms = SETTLED._replace(grace_s=grace_s)
    made = plan(at, rows, terms=terms, is_accepted=True)
    for _ in range(3):
        for step in (*made.register, *made.renew):
            old = rows.get(step.number, row())
            rows = {**rows, step.number: old._replace(manifest=step.manifest)}
            if step in made.register:
                rows[step.number] = KnownVersion(step.manifest, RULES)
        for _, number in made.restore:
            rows[number] = rows[number]._replace(vanished_at=None, is_withdrawn=False)
        for _, number in made.missing:
            rows[number] = rows[number]._replace(vanished_at=NOW)
        for _, number in made.withdraw:
            rows[number] = rows[number]._replace(is_withdrawn=True)
        made = plan(at, rows, terms=terms, is_accepted=True)
    assert (made.register, made.renew, made.restore, made.missing, made.withdraw) == ([], [], [], [], {})
    assert {number for number, each in rows.items() if not each.is_gone} >= set(listed)


def test_what_an_operator_has_deleted_is_passed_by() -> None:
    known = Known({"m": {2: row()}}, {}, deleted={"m": {1}})
    listed = found({1: version(1, etag="other"), 2: version(2)})
    made = decide(listed, known, {}, {}, SETTLED, now=NOW)
    assert (registered(made), made.restore, made.renew, made.refused, made.waiting) == ([], [], [], {}, 0)


def test_deleted_versions_do_not_vouch_for_a_listing() -> None:
    known = Known({"m": {4: row()}}, {}, deleted={"m": {1, 2, 3}})
    listed = found({number: version(number) for number in (1, 2, 3)})
    assert decide(listed, known, {}, {}, SETTLED, now=NOW).alarm


def test_a_deleted_model_is_passed_by_with_its_new_versions() -> None:
    known = Known({}, {}, deleted={"m": {1}}, gone={"m"})
    made = decide(found({1: version(1), 2: version(2)}), known, {}, {}, SETTLED, now=NOW)
    assert (registered(made), made.refused, made.waiting) == ([], {}, 0)
