"""Routes of the live board."""

from django.urls import path

from console.live import views

app_name = "live"
urlpatterns = [
    path("", views.board, name="board"),
    path("live/release", views.release, name="release"),
]
