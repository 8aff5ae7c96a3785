"""Layouts of repositories: what is found as a model, what waits, and what is refused with which sentence."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.repositories.entry import Entry
from signalbox.repositories.layouts import MOST_VERSIONS, Found, FoundModel, find
from signalbox.repositories.version import MOST_FILES
from signalbox.wire.manifests import ManifestFile

INDEX = "variables/variables.index"
PARTS = ["", ".", "..", "m", "Models", "1", "01", "0", "9" * 25, "v1", "saved_model.pb", "model.savedmodel"]
PARTS += [
    "config.pbtxt",
    "variables",
    "variables.index",
    "variables.data-00000-of-00002",
    "assets",
    "_DONE",
    "model.onnx",
]
PARTS += ["a b", "é", "\n", "\udcff", "x" * 300]
PATHS = st.lists(st.sampled_from(PARTS) | st.text(max_size=3), min_size=1, max_size=6).map("/".join)
ENTRIES = st.lists(st.builds(Entry, PATHS, st.integers(0, 2), st.sampled_from(["", "e"])), max_size=40)


def found(*paths: str, marker: str = "", name: str = "zoo") -> Found:
    return find([Entry(path, 1, f"etag of {path}") for path in paths], marker=marker, name=name)


def only(*paths: str, marker: str = "") -> FoundModel:
    listing = found(*paths, marker=marker)
    assert not listing.refused
    (model,) = listing.models.values()
    return model


def refusal(*paths: str, name: str = "zoo") -> tuple[str, str]:
    listing = found(*paths, name=name)
    assert not listing.models
    ((path, why),) = listing.refused.items()
    return path, why


def test_models_of_tensorflow_serving_are_found() -> None:
    listing = found("b/7/saved_model.pb", "a/1/saved_model.pb", "a/2/saved_model.pb", f"a/2/{INDEX}", "a/README.md")
    assert {name: sorted(model.versions) for name, model in listing.models.items()} == {"a": [1, 2], "b": [7]}
    model = listing.models["a"]
    assert model.layout == "serving"
    version = model.versions[2]
    assert version.folder == "a/2"
    assert version.files == (
        ManifestFile("saved_model.pb", 1, "etag of a/2/saved_model.pb"),
        ManifestFile(INDEX, 1, f"etag of a/2/{INDEX}"),
    )
    assert version.graph == version.files[0]


def test_a_model_of_triton_is_found_with_its_config() -> None:
    model = only("m/config.pbtxt", "m/1/model.savedmodel/saved_model.pb", "m/1/other", "m/labels.txt")
    assert model.layout == "triton"
    assert model.config == Entry("m/config.pbtxt", 1, "etag of m/config.pbtxt")
    assert model.versions[1].folder == "m/1/model.savedmodel"
    assert [file.path for file in model.versions[1].files] == ["saved_model.pb"]


def test_triton_needs_no_config_and_neither_do_we() -> None:
    assert only("m/1/model.savedmodel/saved_model.pb").config is None


def test_a_config_beside_tensorflow_serving_s_layout_is_not_triton_s() -> None:
    model = only("m/config.pbtxt", "m/1/saved_model.pb")
    assert (model.layout, model.config) == ("serving", None)


@pytest.mark.parametrize(
    ("paths", "layout", "number", "folder"),
    [
        (("saved_model.pb", INDEX, "variables/variables.data-00000-of-00001"), "single", 1, ""),
        (("5/saved_model.pb",), "single", 5, "5"),
        (("5/model.savedmodel/saved_model.pb", "config.pbtxt"), "triton", 5, "5/model.savedmodel"),
    ],
)
def test_one_model_alone_is_called_like_the_repository(
    paths: tuple[str, ...], layout: str, number: int, folder: str
) -> None:
    model = only(*paths)
    assert (model.name, model.layout, list(model.versions)) == ("zoo", layout, [number])
    assert model.versions[number].folder == folder
    assert (model.config is not None) == ("config.pbtxt" in paths)


def test_a_savedmodel_within_a_version_is_one_of_its_files() -> None:
    model = only("m/1/saved_model.pb", "m/1/assets.extra/other/saved_model.pb", "m/1/model.savedmodel/saved_model.pb")
    assert model.layout == "serving"
    assert len(model.versions[1].files) == 3


def test_folders_without_a_savedmodel_are_no_models() -> None:
    assert found("m/1/weights.h5", "README.md", "m/2/saved_model.pbtxt", "n/saved_model.pb.part") == Found({}, {})
    assert found() == Found({}, {})


def test_a_model_named_by_a_number_is_told_from_a_version() -> None:
    assert only("2024/1/saved_model.pb").name == "2024"


def test_one_model_beside_folders_of_others_is_refused_and_the_others_are_served() -> None:
    listing = found("saved_model.pb", "3/saved_model.pb", "m/1/saved_model.pb")
    assert list(listing.models) == ["m"]
    assert listing.refused.keys() == {"saved_model.pb", "3/saved_model.pb"}


@pytest.mark.parametrize(
    "path", ["m/saved_model.pb", "m/v1/saved_model.pb", "team/m/1/saved_model.pb", "m/1/x/saved_model.pb"]
)
def test_a_savedmodel_that_lies_elsewhere_is_refused(path: str) -> None:
    where, why = refusal(path)
    assert f"{where}/saved_model.pb" == path
    assert why.startswith("A SavedModel is taken from <model>/<number>/saved_model.pb or <model>/<number>/model.savedm")
    assert ("Add a repository for what lies deeper" in why) is (path.count("/") > 2)


@pytest.mark.parametrize("name", ["-m", "m m", "é", "m\n", "x" * 101, "..", ".", "", "jobs", "Stats"])
def test_a_name_that_no_model_can_have_is_refused(name: str) -> None:
    path, why = refusal(f"{name}/1/saved_model.pb")
    if name:
        assert why.startswith("No model can be called")
        assert ": it takes 1 to 100 letters" in why or why.endswith(": an API's paths have that word.")
    assert path.isprintable()


def test_a_repository_whose_name_no_model_can_have_serves_no_model_alone() -> None:
    assert (
        refusal("saved_model.pb", name="models")[1] == "No model can be called 'models': an API's paths have that word."
    )


@pytest.mark.parametrize("number", ["0", "000", str(2**63), "9" * 30])
def test_a_number_that_no_version_can_have_is_refused(number: str) -> None:
    assert refusal(f"m/{number}/saved_model.pb") == (f"m/{number}", f"A version is a number from 1 to {2**63 - 1}.")


def test_two_folders_of_one_number_are_refused_and_the_rest_is_served() -> None:
    listing = found("m/1/saved_model.pb", "m/01/saved_model.pb", "m/2/saved_model.pb")
    assert list(listing.models["m"].versions) == [2]
    assert listing.refused == dict.fromkeys(["m/1", "m/01"], "2 folders are version 1. Leave one of them.")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (["a/../../b"], "Its file 'a/../../b' has an empty part, '.' or '..'."),
        (["a//b"], "Its file 'a//b' has an empty part, '.' or '..'."),
        (["a\nb"], r"has a character that cannot be printed."),
        (["a\udcff"], r"has a character that cannot be printed."),
        (["a", "a/b"], "'a' is both a file and a folder of it."),
        ([f"{number:05}" for number in range(MOST_FILES)], "It has 10001 files; at most 10000 are taken."),
        ([f"{number:04}" + "x" * 900 for number in range(600)], "The list of its files has more than 512 KiB."),
    ],
)
def test_a_version_whose_files_cannot_be_served_is_refused(files: list[str], why: str) -> None:
    path, said = refusal("m/1/saved_model.pb", *(f"m/1/{file}" for file in files))
    assert path == "m/1"
    assert said.endswith(why)
    assert said.isprintable()


def test_of_many_versions_the_newest_are_taken() -> None:
    listing = found(*(f"m/{number}/saved_model.pb" for number in range(1, 101)))
    assert sorted(listing.models["m"].versions) == list(range(101 - MOST_VERSIONS, 101))
    assert listing.refused == {"m": "It has 100 versions; the 64 newest are taken."}


def test_models_of_triton_that_are_no_savedmodels_are_refused_by_what_they_are() -> None:
    listing = found(
        "o/config.pbtxt", "o/1/model.onnx", "e/config.pbtxt", "t/config.pbtxt", "t/1/model.savedmodel/saved_model.pb"
    )
    assert list(listing.models) == ["t"]
    assert listing.refused["o"].startswith("This model of Triton's is ONNX; ")
    assert listing.refused["e"].startswith("This model of Triton's is no SavedModel; ")


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ([], []),
        ([INDEX], ["variables/variables.data-00000-of-00001"]),
        ([INDEX, "variables/variables.data-00000-of-00001"], []),
        (["variables/variables.data-00000-of-00001"], [INDEX]),
        (
            [INDEX, "variables/variables.data-00001-of-00003"],
            [f"variables/variables.data-0000{n}-of-00003" for n in (0, 2)],
        ),
        ([INDEX, "variables/variables.data-00000-of-00001", "variables/variables.data-00000-of-00002"], []),
        (
            [INDEX, "variables/variables.data-00000-of-99999"],
            [f"variables/variables.data-0000{n}-of-99999" for n in range(1, 9)],
        ),
        ([INDEX, "variables/variables.data-00007-of-00002"], ["variables/variables.data-00000-of-00001"]),
    ],
)
def test_a_version_says_which_variables_are_still_missing(files: list[str], missing: list[str]) -> None:
    version = only("m/1/saved_model.pb", *(f"m/1/{file}" for file in files)).versions[1]
    assert list(version.missing) == missing


@pytest.mark.parametrize(
    ("paths", "is_marked"),
    [
        (["m/1/saved_model.pb"], False),
        (["m/1/saved_model.pb", "m/_DONE"], False),
        (["m/1/saved_model.pb", "m/1/_DONE"], True),
        (["m/1/model.savedmodel/saved_model.pb", "m/1/_DONE"], True),
        (["m/1/model.savedmodel/saved_model.pb", "m/1/model.savedmodel/_DONE"], True),
    ],
)
def test_a_marker_lies_in_the_folder_of_the_version(paths: list[str], *, is_marked: bool) -> None:
    assert only(*paths, marker="_DONE").versions[1].is_marked == is_marked
    assert not only(*paths).versions[1].is_marked


def test_empty_files_that_stand_for_folders_are_none_of_the_version_s() -> None:
    paths = ["m", "m/1", "m/1/assets", "m/1/variables", f"m/1/{INDEX}", "m/1/_DONE"]
    entries = [Entry("m/1/saved_model.pb", 1), *(Entry(path, 0) for path in paths)]
    version = find(entries, marker="_DONE", name="zoo").models["m"].versions[1]
    assert [file.path for file in version.files] == ["_DONE", "saved_model.pb", INDEX]
    assert version.is_marked


@given(ENTRIES, st.sampled_from(["", "_DONE", "saved_model.pb", "\udcff"]), st.sampled_from(["zoo", "", "..", "\n"]))
def test_whatever_a_listing_holds_is_found_or_refused(entries: list[Entry], marker: str, name: str) -> None:
    listing = find(entries, marker=marker, name=name)
    there = {entry.path: entry for entry in entries}
    for called, model in listing.models.items():
        assert called == model.name
        assert 1 <= len(model.versions) <= MOST_VERSIONS
        for version in model.versions.values():
            assert version.graph in version.files
            msgspec.json.encode(version.files)
            for file in version.files:
                path = f"{version.folder}/{file.path}" if version.folder else file.path
                assert there[path] == Entry(path, file.size_bytes, file.etag)
                assert ".." not in file.path.split("/")
    for path, why in listing.refused.items():
        assert path.isprintable()
        assert why.isprintable()
        assert why.endswith(".")
