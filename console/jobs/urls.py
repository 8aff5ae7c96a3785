"""Routes of jobs."""

from django.urls import path

from console.pages import jobs

urlpatterns = [
    path("jobs", jobs.index, name="jobs"),
    path("jobs/<str:job_id>", jobs.detail, name="job"),
    path("jobs/<str:job_id>/cancel", jobs.cancel, name="cancel-job"),
]
