"""The board's page, and the one act its buttons have."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from console.accounts.acts import Act
from console.accounts.rights import may
from console.fleet.services import ask_release
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import SignalboxError, meaning


@require_GET
@sees(Act.SYSTEM_VIEW)
def board(request: HttpRequest) -> HttpResponse:
    """The page; what it shows comes over the websocket."""
    return render(request, "live/board.html", {"may_release": may(actor_of(request), Act.LANES_RELEASE)})


@require_POST
def release(request: HttpRequest) -> JsonResponse:
    """Asks a lane's holder to hand over. Answers ``{"message": ...}``: asked is not yet done."""
    gpu = request.POST.get("gpu", "")
    try:
        ask_release(actor_of(request), gpu, reason=request.POST.get("reason", ""))
    except SignalboxError as error:
        return JsonResponse({"message": error.public_message}, status=meaning(error.code).http)
    return JsonResponse({"message": "The holder is asked. The lane shows when it hands over."})
