"""The one dialog: every form that asks first names the act and the thing, and its button says the act again."""

import re
from pathlib import Path
from typing import Final

import pytest

import console

TEMPLATES: Final = Path(console.__file__).parent / "templates"
FORM: Final = re.compile(r"<form\b(?P<tag>(?:[^<>]|\{%.*?%\}|\{\{.*?\}\})*)>(?P<body>.*?)</form>", re.DOTALL)
BUTTON: Final = re.compile(r'<button[^>]*type="submit"[^>]*>(?P<text>.*?)</button>', re.DOTALL)


def _asking() -> dict[str, tuple[str, str]]:
    """Place to the tag and the body of each form that asks first."""
    return {
        f"{path.relative_to(TEMPLATES)}:{number}": (form["tag"], form["body"])
        for path in sorted(TEMPLATES.rglob("*.html"))
        for number, form in enumerate(FORM.finditer(path.read_text()))
        if "data-confirm" in form["tag"]
    }


ASKING: Final = _asking()


def _said(tag: str, name: str) -> str:
    """An attribute as the template has it, tags of the template among it."""
    found = re.search(rf'{name}="((?:\{{%.*?%\}}|\{{\{{.*?\}}\}}|[^"])*)"', tag)
    return found[1].strip() if found else ""


def _words(text: str) -> list[str]:
    """What a text may come out as: each branch of its conditions."""
    return [part.strip() for part in re.split(r"\{%.*?%\}|<[^>]*>", text) if part.strip()]


def test_there_are_forms_that_ask() -> None:
    assert len(ASKING) > 12
    text = "".join(path.read_text() for path in TEMPLATES.rglob("*.html"))
    assert sum(len(re.findall(r'data-confirm="', tag)) for tag, _ in ASKING.values()) == text.count('data-confirm="')


@pytest.mark.parametrize("place", ASKING)
def test_a_form_that_asks_names_the_act_and_the_thing_and_its_button_says_it_again(place: str) -> None:
    tag, body = ASKING[place]
    what, title, verb = (_said(tag, f"data-confirm{name}") for name in ("", "-title", "-verb"))
    assert what.endswith((".", "%}")), "what happens, in a sentence"
    assert "{{" in title or len(title.split()) > 2, "the title names the thing"
    assert "?" not in re.sub(r"\{[{%].*?[%}]\}", "", title)
    button = BUTTON.search(body)
    assert button
    assert _words(verb)
    verbs = {words.split()[0] for words in _words(verb)}
    assert verbs <= {words.split()[0] for words in _words(button["text"])} - {"Confirm", "OK", "Yes"}


def test_the_dialog_itself_asks_nothing_and_has_one_harmless_button() -> None:
    dialog = (TEMPLATES / "partials/confirm.html").read_text() + (TEMPLATES.parent / "static/js/confirm.js").read_text()
    for word in ("Are you sure", '"Confirm"', '"Cancel"', ">Cancel<", ">Confirm<"):
        assert word not in dialog
    assert re.search(r'<button[^>]*id="confirm-keep" autofocus>', dialog)
    texts = {path: path.read_text() for path in TEMPLATES.rglob("*.html")}
    assert [path for path, text in texts.items() if ">Cancel</button>" in text or "Are you sure" in text] == []
