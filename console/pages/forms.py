"""Shared parts of forms, and the form of an account."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django import forms

from console.catalog.models import ServedModel
from console.keys import accounts
from signalbox.program.errors import SignalboxError


class ModelsForm(forms.Form):
    """A form with a list of models, of those there are."""

    models = forms.MultipleChoiceField(
        required=False, widget=forms.CheckboxSelectMultiple, help_text="None ticked: every model, also those to come."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = ServedModel.objects.values_list("name", flat=True)
        offer(self, "models", [(name, name) for name in names])


def offer(form: forms.Form, name: str, choices: list[tuple[str, str]]) -> None:
    """Set what a field of this one form may be chosen from."""
    field = form.fields[name]
    if isinstance(field, forms.ChoiceField):
        field.choices = choices


def _share(name: str, label: str, help_text: str) -> forms.IntegerField:
    return forms.IntegerField(label=label, min_value=0, max_value=accounts.BOUNDS[name], initial=0, help_text=help_text)


class AccountForm(ModelsForm):
    """A new account, or the terms of one."""

    name = forms.CharField(max_length=accounts.MOST_NAME, help_text="The customer, e.g. “Checkout team”.")
    note = forms.CharField(
        max_length=accounts.MOST_NOTE,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="For operators: who to ask, a contract, why a share differs.",
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
