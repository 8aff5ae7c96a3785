"""Routes of the audit."""

from django.urls import path

from console.audit import views

urlpatterns = [path("audit", views.index, name="audit")]
