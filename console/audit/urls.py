"""Routes of the audit."""

from django.urls import path

from console.pages import audit

urlpatterns = [path("audit", audit.index, name="audit")]
