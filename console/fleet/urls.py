"""Routes of workers and lanes."""

from django.urls import path

from console.fleet import views

urlpatterns = [
    path("workers", views.index, name="workers"),
    path("workers/<str:worker>", views.detail, name="worker"),
    path("workers/<str:worker>/drain", views.drain, name="worker-drain"),
    path("lanes/<str:gpu>/release", views.release, name="lane-release"),
]
