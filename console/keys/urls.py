"""Routes of API keys and accounts."""

from django.urls import path

from console.pages import accounts, keys

urlpatterns = [
    path("keys", keys.index, name="keys"),
    path("keys/new", keys.create, name="create-key"),
    path("keys/<str:kid>", keys.detail, name="key"),
    path("keys/<str:kid>/created", keys.created, name="key-created"),
    path("keys/<str:kid>/adopt", keys.adopt, name="adopt-key"),
    path("keys/<str:kid>/revoke", keys.revoke, name="revoke-key"),
    path("keys/<str:kid>/rotate", keys.rotate, name="rotate-key"),
    path("keys/<str:kid>/posting", keys.posting, name="key-posting"),
    path("accounts", accounts.index, name="accounts"),
    path("accounts/new", accounts.create, name="create-account"),
    path("accounts/<str:account_id>", accounts.detail, name="account"),
    path("accounts/<str:account_id>/edit", accounts.edit, name="edit-account"),
]
