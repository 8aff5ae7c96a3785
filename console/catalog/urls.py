"""Routes of models."""

from django.urls import path

from console.catalog import views

urlpatterns = [
    path("models", views.index, name="models"),
    # No model's name begins with "-", so neither hides a model.
    path("models/-/register", views.register, name="register-model"),
    path("models/-/upload", views.upload, name="upload-model"),
    path("models/<str:name>", views.detail, name="model"),
    path("models/<str:name>/settings", views.change_settings, name="model-settings"),
    path("models/<str:name>/enabled", views.set_enabled, name="model-enabled"),
    path("models/<str:name>/replicas", views.set_replicas, name="model-replicas"),
    path("models/<str:name>/default", views.set_default, name="model-default"),
    path("models/<str:name>/label", views.set_label, name="model-label"),
    path("models/<str:name>/approve", views.approve, name="model-approve"),
    path("models/<str:name>/pause", views.pause, name="model-pause"),
]
