"""Routes of models."""

from django.urls import path

from console.pages import catalog

urlpatterns = [
    path("models", catalog.index, name="models"),
    # No model's name begins with "-", so neither hides a model.
    path("models/-/register", catalog.register, name="register-model"),
    path("models/-/upload", catalog.upload, name="upload-model"),
    path("models/<str:name>", catalog.detail, name="model"),
    path("models/<str:name>/settings", catalog.change_settings, name="model-settings"),
    path("models/<str:name>/enabled", catalog.set_enabled, name="model-enabled"),
    path("models/<str:name>/replicas", catalog.set_replicas, name="model-replicas"),
    path("models/<str:name>/default", catalog.set_default, name="model-default"),
    path("models/<str:name>/label", catalog.set_label, name="model-label"),
    path("models/<str:name>/approve", catalog.approve, name="model-approve"),
    path("models/<str:name>/pause", catalog.pause, name="model-pause"),
]
