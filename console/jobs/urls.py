"""Routes of jobs."""

from django.urls import path

from console.jobs import views

urlpatterns = [
    path("jobs", views.index, name="jobs"),
    path("jobs/<str:job_id>", views.detail, name="job"),
    path("jobs/<str:job_id>/cancel", views.cancel, name="cancel-job"),
]
