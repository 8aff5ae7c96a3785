"""The websocket's route."""

from typing import Any

from django.urls import path

from console.live.consumer import LiveConsumer

_live: Any = LiveConsumer.as_asgi()  # Channels routes ASGI applications with Django's own path()
websocket_urlpatterns = [path("ws/live", _live)]
