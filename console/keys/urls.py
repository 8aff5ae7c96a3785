"""Routes of API keys and accounts."""

from django.urls import path

from console.keys import account_views, views

urlpatterns = [
    path("keys", views.index, name="keys"),
    path("keys/new", views.create, name="create-key"),
    path("keys/<str:kid>", views.detail, name="key"),
    path("keys/<str:kid>/created", views.created, name="key-created"),
    path("keys/<str:kid>/adopt", views.adopt, name="adopt-key"),
    path("keys/<str:kid>/revoke", views.revoke, name="revoke-key"),
    path("keys/<str:kid>/rotate", views.rotate, name="rotate-key"),
    path("keys/<str:kid>/posting", views.posting, name="key-posting"),
    path("accounts", account_views.index, name="accounts"),
    path("accounts/new", account_views.create, name="create-account"),
    path("accounts/<str:account_id>", account_views.detail, name="account"),
    path("accounts/<str:account_id>/edit", account_views.edit, name="edit-account"),
]
