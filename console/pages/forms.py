"""Shared parts of forms, and the form of an account."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django import forms

from console.keys import accounts
from signalbox.program.errors import SignalboxError


class WordsField(forms.CharField):
    """A list of words, separated by spaces, commas or lines."""

    widget = forms.Textarea(attrs={"rows": 2, "spellcheck": "false"})

    def prepare_value(self, value: Any) -> Any:
        """The list as it is written."""
        return " ".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:  # type: ignore[override]  # its value is what the text lists
        """The words."""
        return str(value or "").replace(",", " ").split()

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether other words are listed."""
        return list(initial or ()) != self.to_python(data)


def offer(form: forms.BaseForm, name: str, choices: list[tuple[str, str]]) -> None:
    """Set what a field of this one form may be chosen from."""
    field = form.fields[name]
    if isinstance(field, forms.ChoiceField):
        field.choices = choices


def _share(name: str, label: str, help_text: str) -> forms.IntegerField:
    return forms.IntegerField(label=label, min_value=0, max_value=accounts.BOUNDS[name], initial=0, help_text=help_text)


class AccountForm(forms.Form):
    """A new account, or the terms of one."""

    name = forms.CharField(max_length=accounts.MOST_NAME, help_text="The customer, e.g. “Checkout team”.")
    note = forms.CharField(
        max_length=accounts.MOST_NOTE,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="For operators: who to ask, a contract, why a share differs.",
    )
    models = WordsField(
        required=False,
        help_text="Names, or beginnings of names like <code>team-*</code>. Empty: every model, also those to come, but"
        " for those of a repository that is not open to it.",
    )
    stored_bytes = _share(
        "stored_bytes",
        "Stored inputs (bytes)",
        "Of its jobs that have not ended. 0: as the gateways are set for every account.",
    )
    waiting = _share(
        "waiting",
        "Waiting calls",
        "Calls that wait for a result at once, at one gateway. 0: as the gateways are set.",
    )
    idempotency_keys = _share("idempotency_keys", "Idempotency keys", "Remembered at once. 0: as the gateways are set.")
    result_bytes = _share(
        "result_bytes",
        "Results (bytes)",
        "Of its latest results, where room for results is short. 0: as the gateways are set.",
    )
    queue_bytes = _share(
        "queue_bytes", "Queues (bytes)", "Of items in its queues, source and sink. 0: as many as its queues take."
    )


@contextmanager
def refusals_in(form: forms.BaseForm) -> Iterator[None]:
    """A service's refusal ends the body and is shown at the field it names (``field: reason``), else above the form."""
    try:
        yield
    except SignalboxError as error:
        name, _, rest = error.public_message.partition(": ")
        if rest and name in form.fields:
            form.add_error(name, rest)
        else:
            form.add_error(None, error.public_message)
