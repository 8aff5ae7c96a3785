"""Routes of workers and lanes."""

from django.urls import path

from console.pages import workers

urlpatterns = [
    path("workers", workers.index, name="workers"),
    path("workers/<str:worker>", workers.detail, name="worker"),
    path("workers/<str:worker>/drain", workers.drain, name="worker-drain"),
    path("lanes/<str:gpu>/release", workers.release, name="lane-release"),
]
