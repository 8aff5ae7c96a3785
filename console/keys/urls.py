"""Routes of API keys."""

from django.urls import path

from console.keys import views

urlpatterns = [
    path("keys", views.index, name="keys"),
    path("keys/new", views.create, name="create-key"),
    path("keys/<str:kid>", views.detail, name="key"),
    path("keys/<str:kid>/created", views.created, name="key-created"),
    path("keys/<str:kid>/revoke", views.revoke, name="revoke-key"),
    path("keys/<str:kid>/rotate", views.rotate, name="rotate-key"),
    path("keys/<str:kid>/posting", views.posting, name="key-posting"),
]
