"""Routes of workers and lanes."""

from django.urls import path

from console.fleet import views

urlpatterns = [
    path("workers/<str:worker>/drain", views.drain, name="worker-drain"),
    path("lanes/<str:gpu>/release", views.release, name="lane-release"),
]
