"""Routes of login, settings and operators."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from console.accounts import views

urlpatterns = [
    path("login", views.Login.as_view(), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
    path("healthz", views.health, name="health"),
    path("confirm", views.confirm_password, name="confirm-password"),
    path("settings", views.settings_page, name="settings"),
    path("settings/password", views.change_password, name="change-password"),
    path("settings/tokens", views.create_token, name="create-token"),
    path("settings/tokens/<str:token_id>/revoke", views.revoke_token, name="revoke-token"),
    path("settings/read-only", views.read_only, name="read-only"),
    path("settings/users", views.users, name="users"),
    path("settings/users/new", views.create_user, name="create-user"),
    path("settings/users/<str:username>/role", views.set_role, name="set-role"),
    path("settings/users/<str:username>/active", views.set_active, name="set-active"),
]
