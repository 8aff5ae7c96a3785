"""All routes of the console."""

from django.urls import include, path

handler400 = "console.pages.operators.bad_request"
handler404 = "console.pages.operators.not_found"
handler500 = "console.pages.operators.server_error"
urlpatterns = [
    path("", include("console.live.urls")),
    path("", include("console.accounts.urls")),
    path("", include("console.catalog.urls")),
    path("", include("console.keys.urls")),
    path("", include("console.jobs.urls")),
    path("", include("console.fleet.urls")),
    path("", include("console.audit.urls")),
    path("api/", include("console.api.urls")),
]
