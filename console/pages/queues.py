"""Pages of queues: how they stand, what they are set to, and what operators do with what is in them."""

from typing import Any, Final, NamedTuple

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.board import queueservice
from console.keys.models import Account
from console.pages import flash
from console.pages.forms import WordsField, offer, refusals_in
from console.pages.sudo import asks_password
from console.queues import contents, reading, services, terms
from console.queues.models import Queue
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program import words
from signalbox.program.errors import InvalidRequest, Misconfigured, Unavailable
from signalbox.wire.queuenames import SIDES, Side
from signalbox.wire.queues import MOST_QUEUES, QueueState, Room, SideState, WatchState

_OFFERED: Final = 1000
"""Accounts that the form offers."""
_WATCHES: Final = 200
"""Shown of one side."""
_LENGTH_HELP: Final = "Items. Empty: as many as the memory allows at the payload size."
_PAYLOAD_HELP: Final = (
    f"Of one item, at most {terms.MOST_PAYLOAD_KB}. Empty: {terms.DEFAULT_PAYLOAD_KB}, or what the memory allows at"
    " the length. Give one of the two."
)
_EVICT_HELP: Final = "A full side drops its oldest item for a new one. Off: it refuses the new one."


def _number(label: str, least: int, most: int, help_text: str, initial: int | None = None) -> forms.IntegerField:
    return forms.IntegerField(
        label=label, min_value=least, max_value=most, initial=initial, help_text=help_text, required=initial is not None
    )


class SettingsForm(forms.Form):
    """What a queue is set to."""

    services = WordsField(
        required=False,
        help_text="Models that take items from the source and put their results into the sink. Empty: consumers of the"
        " account's own do.",
    )
    key = forms.CharField(
        label="Key of their jobs",
        max_length=32,
        required=False,
        help_text="Id of a key of the account, whose rights count. Rate and quota are for calls, as puts are. Empty:"
        " any of its keys that may.",
    )
    group = forms.CharField(max_length=terms.MOST_WORD, required=False, help_text="Of its services, for people.")
    source_max_length = _number("Source: most items", 1, terms.MOST_LENGTH, _LENGTH_HELP)
    source_max_payload_size_kb = _number("Source: largest item (kB)", 1, terms.MOST_PAYLOAD_KB, _PAYLOAD_HELP)
    source_auto_evict = forms.BooleanField(label="Source evicts", required=False, help_text=_EVICT_HELP)
    sink_max_length = _number("Sink: most items", 1, terms.MOST_LENGTH, _LENGTH_HELP)
    sink_max_payload_size_kb = _number("Sink: largest item (kB)", 1, terms.MOST_PAYLOAD_KB, _PAYLOAD_HELP)
    sink_auto_evict = forms.BooleanField(label="Sink evicts", required=False, help_text=_EVICT_HELP)
    memory = _number(
        "Memory (MB)", 1, terms.MOST_MEMORY_MB, "On disk, of both sides; a tenth of it is kept free.", 4000
    )
    memory_ratio = forms.FloatField(
        label="Sink's part of it",
        min_value=0.01,
        max_value=0.99,
        initial=0.5,
        help_text="More where results are larger.",
    )
    max_delivery = _number(
        "Most deliveries", 0, terms.MOST_DELIVERY, "Of one item; after these it is dead. 0: no limit.", 5
    )
    max_idle = forms.CharField(
        label="Longest without a commit",
        max_length=20,
        initial="0",
        help_text="Such as 90s, 5m or 1h; then another consumer gets the item. 0: as long as its consumer is there.",
    )
    dead_message_policy = forms.ChoiceField(
        label="Dead items",
        choices=[("Rear", "Rear: into the rear queue"), ("Drop", "Drop: away")],
        widget=forms.RadioSelect,
        initial="Rear",
    )
    instance = _number("Replicas", 1, 5, "On NATS, as far as it has nodes.", 1)
    min_replica = _number("Least replicas", 1, 5, "Without effect: all replicas are always there.", 1)
    cpu = _number("Cores", 1, 1024, "Without effect: NATS shares its cores.", 1)
    resource = forms.CharField(max_length=terms.MOST_WORD, required=False, help_text="Resource group; without effect.")

    def given(self) -> dict[str, Any]:
        """The terms: a bound that is empty is 0, as it follows from the other."""
        found = {name: self.cleaned_data[name] for name in terms.Terms.__struct_fields__ if name in self.cleaned_data}
        found = {name: 0 if value is None else value for name, value in found.items()}
        return found | {"max_idle_s": terms.seconds_of(self.cleaned_data["max_idle"])}


class QueueForm(SettingsForm):
    """A new queue."""

    name = forms.CharField(
        max_length=terms.MOST_NAME, help_text="Letters, digits, “.”, “_” and “-”. It stays as it is."
    )
    account = forms.ChoiceField(help_text="Whose keys may use it.")
    field_order = ("name", "account")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = Account.objects.filter(deleted_at=None).order_by("name", "pk")
        offer(self, "account", [(one.pk, str(one)) for one in known[:_OFFERED]])


class ShownSide(NamedTuple):
    """A side as the page shows it. room: of how many items. watches: at most :data:`_WATCHES` of them. redriven: how
    many dead items one act puts back."""

    name: Side
    state: SideState
    room: Room
    is_full: bool
    watches: list[WatchState]
    watch_count: int
    redriven: int


@sees(Act.QUEUES_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """All queues and how they stand."""
    context: dict[str, Any] = {"why_unknown": "", "rows": [], "most": MOST_QUEUES}
    found = list(services.listed())
    try:
        states = reading.states() if found else {}
    except (Unavailable, Misconfigured) as error:
        states, context["why_unknown"] = {}, error.public_message
    for queue in found:
        state = states.get(queue.name)
        sides = [_side(queue, side, state) for side in SIDES]
        rear = sum(side.state.rear for side in sides)
        context["rows"].append((queue, queueservice.condition(queue.document(), state), sides, rear))
    return render(request, "queues/index.html", context)


@sees(Act.QUEUES_VIEW)
@require_safe
def detail(request: HttpRequest, name: str) -> HttpResponse:
    """One queue: both sides, their groups, consumers and rear queues, and what can be done."""
    queue = services.find(name)
    context: dict[str, Any] = {
        "queue": queue,
        "max_idle": terms.text_of(queue.max_idle_s),
        "why_unpublished": services.unpublished().get(name, ""),
        "history": AuditEntry.objects.filter(target_kind="queue", target=name)[:30],
        "front": settings.CONSOLE.front_url or "https://FRONT",
        "without_key": services.without_key(queue),
        "state": None,
    }
    try:
        context["state"] = reading.state(name)
    except (Unavailable, Misconfigured) as error:
        context["why_unknown"] = error.public_message
    context["condition"] = queueservice.condition(queue.document(), context["state"])
    context["sides"] = [_side(queue, side, context["state"]) for side in SIDES]
    context["items"] = sum(side.state.length + side.state.rear for side in context["sides"])
    return render(request, "queues/detail.html", context)


@require_http_methods(["GET", "POST"])
@sees(Act.QUEUES_MANAGE)
@asks_password
def create(request: HttpRequest) -> HttpResponse:
    """The form; then the queue's page."""
    form = QueueForm(request.POST or None, initial={"account": request.GET.get("account", "")})
    if form.is_valid():
        with refusals_in(form):
            given, name, account = form.given(), form.cleaned_data["name"], form.cleaned_data["account"]
            made = services.create(actor_of(request), name, account, given)
            flash.say(request, f"Queue {made.name} is made", services.why_unpublished(made.name))
            return redirect("queue", name=made.name)
    return render(request, "queues/create.html", {"form": form}, status=400 if form.is_bound else 200)


@require_http_methods(["GET", "POST"])
@sees(Act.QUEUES_MANAGE)
@asks_password
def change_settings(request: HttpRequest, name: str) -> HttpResponse:
    """The form; then the queue's page."""
    queue = services.find(name)
    form = SettingsForm(request.POST or None, initial=_initial(queue))
    if form.is_valid():
        with refusals_in(form):
            services.change(actor_of(request), name, form.given())
            flash.say(request, "Saved", services.why_unpublished(name))
            return redirect("queue", name=name)
    context = {"form": form, "queue": queue}
    return render(request, "queues/settings.html", context, status=400 if form.is_bound else 200)


@require_POST
@sees(Act.QUEUES_MANAGE)
@asks_password
def delete(request: HttpRequest, name: str) -> HttpResponse:
    """Delete it with all that is in it."""
    services.delete(actor_of(request), name, reason=request.POST.get("reason", ""))
    flash.say(request, f"Queue {name} is deleted", services.why_unpublished(name))
    return redirect("queues")


@require_POST
def purge(request: HttpRequest, name: str) -> HttpResponse:
    """Delete the items that the operator was told of."""
    given = request.POST
    items, is_rear = given.get("items", ""), given.get("rear") == "1"
    if not items.isdecimal() or len(items) > 10:
        raise InvalidRequest("items: how many there are that shall go.")
    done = contents.purge(
        actor_of(request), name, _named(given.get("side")), int(items), is_rear=is_rear, reason=given.get("reason", "")
    )
    flash.done(request, f"{words.counted(done, 'item is', 'items are')} deleted.")
    return redirect("queue", name=name)


@require_POST
def redrive(request: HttpRequest, name: str) -> HttpResponse:
    """Put items of a rear queue back."""
    side = _named(request.POST.get("side"))
    done = contents.redrive(actor_of(request), name, side, reason=request.POST.get("reason", ""))
    flash.done(request, f"{words.counted(done, 'item is', 'items are')} in the {side} again.")
    return redirect("queue", name=name)


@require_POST
def reopen(request: HttpRequest, name: str) -> HttpResponse:
    """Have a side whose stream was ended take items again."""
    side = _named(request.POST.get("side"))
    contents.reopen(actor_of(request), name, side, reason=request.POST.get("reason", ""))
    flash.done(request, f"The {side} takes items again.")
    return redirect("queue", name=name)


def _side(queue: Queue, side: Side, state: QueueState | None) -> ShownSide:
    document = queue.document()
    watches = [one for one in (state.watches if state is not None else ()) if one.side == side]
    watches.sort(key=lambda one: (one.group, one.uid))
    told, is_full = queueservice.side_of(state, side), queueservice.is_full(document, side, state)
    redriven = min(told.rear, contents.MOST_REDRIVEN)
    return ShownSide(side, told, document.room(side), is_full, watches[:_WATCHES], len(watches), redriven)


def _named(given: str | None) -> Side:
    side = next((one for one in SIDES if one == given), None)
    if side is None:
        raise InvalidRequest(f"side: one of {', '.join(SIDES)}.")
    return side


def _initial(queue: Queue) -> dict[str, Any]:
    found = {name: getattr(queue, name) for name in terms.Terms.__struct_fields__}
    empty = {name: None for name in found if name.endswith(("_max_length", "_max_payload_size_kb")) and not found[name]}
    return found | empty | {"max_idle": terms.text_of(queue.max_idle_s)}
