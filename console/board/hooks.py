"""What a webhook's deliveries are called, and the alarms about them. Pure."""

from collections.abc import Mapping

from msgspec.structs import replace

from console.board.causes import grouped, hint
from console.board.conditions import Condition
from console.board.rows import Alarm
from signalbox.wire.outbound import HookState, Webhook


def condition(hook: Webhook, state: HookState | None) -> Condition:
    """How it goes, in a word of the stylesheet and in words for people. state: None where nothing was delivered yet."""
    if not hook.is_enabled:
        return Condition("disabled", "off", "nothing is delivered to it")
    if state is None:
        return Condition("idle", "not used yet", "nothing was delivered to it yet")
    if is_given_up(hook, state):
        return Condition("failed", "given up", state.why or state.last_error)
    if state.failing_since:
        return Condition("waiting", "fails", state.last_error or f"it answered {state.last_status}")
    return Condition("ok", "delivers")


def is_given_up(hook: Webhook, state: HookState) -> bool:
    """Whether deliveries to it have ended by themselves, until an operator enables it."""
    return state.disabled_at > hook.enabled_at


def alarms(hooks: Mapping[str, Webhook], states: Mapping[str, HookState]) -> dict[str, Alarm]:
    """One for each webhook that is on and was given up; many as one."""
    found = {}
    for key, hook in hooks.items():
        state = states.get(key)
        if state is None or not hook.is_enabled or not is_given_up(hook, state):
            continue
        what = "Own webhooks of jobs" if hook.is_for_jobs else hook.url.partition("?")[0].partition("//")[2]
        text = f"Webhook {what} was given up: {state.why or state.last_error}"
        found[f"hook:{key}"] = Alarm("error", text, state.disabled_at, f"/results/webhooks/{hook.id}", what=what)
    return grouped({key: replace(alarm, hint=hint(key)) for key, alarm in found.items()})
