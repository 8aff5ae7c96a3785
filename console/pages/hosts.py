"""Pages of hosts: what the disk cache of each holds."""

from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.acts import Act
from console.fleet import agents, hosts, services
from console.pages import flash
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program import words
from signalbox.program.errors import InvalidRequest, Unavailable

_MOST_ASKED: Final = 100


@sees(Act.SYSTEM_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Every host, and how much of its disk cache is used; without NATS it says that they are not known."""
    try:
        return render(request, "workers/hosts.html", {"hosts": hosts.hosts(), "agents": agents.present()})
    except Unavailable as error:
        return render(request, "workers/hosts.html", {"error": error.public_message})


@sees(Act.SYSTEM_VIEW)
@require_safe
def detail(request: HttpRequest, host: str) -> HttpResponse:
    """A page of what is in a host's disk cache. The URL is the view."""
    asked = {name: request.GET.get(name, "").strip()[:_MOST_ASKED] for name in ("q", "repository", "state")}
    given = request.GET.get("page", "")
    number = max(1, int(given)) if given.isdecimal() and len(given) < 6 else 1
    context: dict[str, Any] = {
        "name": host,
        "asked": asked,
        "states": hosts.STATES.items(),
        "is_filtered": any(asked.values()),
    }
    try:
        page = hosts.page(host, q=asked["q"], repository=asked["repository"], state=asked["state"], number=number)
    except (InvalidRequest, Unavailable) as error:
        status = 400 if isinstance(error, InvalidRequest) else 503
        return render(request, "workers/host.html", context | {"error": error.public_message}, status=status)
    cache = page.host.cache
    context |= {
        "page": page,
        "agent": agents.present().get(host),
        "desired": agents.desired_of(agents.name_of(host)),
        "repositories": sorted({one.repository for one in cache.versions}) if cache is not None else (),
        "unlisted": cache.count - len(cache.versions) if cache is not None else 0,
        "first": number > 1 and f"?{urlencode(asked)}",
        "next": page.next and f"?{urlencode(asked | {'page': page.next})}",
        "note": words.counted(page.found, "version"),
    }
    return render(request, "workers/host.html", context)


@require_POST
def drain(request: HttpRequest, host: str) -> HttpResponse:
    """Drain a host, or have it take part again."""
    is_draining, reason = request.POST.get("draining") == "1", request.POST.get("reason", "")
    desired = services.drain_host(actor_of(request), host, is_draining=is_draining, reason=reason)
    done = f"{host} is asked to {'drain' if is_draining else 'take part again'}"
    flash.say(request, done, services.why_unpublished(desired))
    return redirect("hosts")
