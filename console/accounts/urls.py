"""Routes of login, settings and operators."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from console.pages import operators

urlpatterns = [
    path("login", operators.Login.as_view(), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
    path("healthz", operators.health, name="health"),
    path("confirm", operators.confirm_password, name="confirm-password"),
    path("settings", operators.settings_page, name="settings"),
    path("settings/password", operators.change_password, name="change-password"),
    path("settings/tokens", operators.create_token, name="create-token"),
    path("settings/tokens/<str:token_id>/revoke", operators.revoke_token, name="revoke-token"),
    path("settings/read-only", operators.read_only, name="read-only"),
    path("settings/users", operators.users, name="users"),
    path("settings/users/new", operators.create_user, name="create-user"),
    path("settings/users/<str:username>/role", operators.set_role, name="set-role"),
    path("settings/users/<str:username>/active", operators.set_active, name="set-active"),
]
