"""Routes of the live board."""

from django.urls import path

from console.pages import board

app_name = "live"
urlpatterns = [
    path("", board.board, name="board"),
    path("live/release", board.release, name="release"),
]
