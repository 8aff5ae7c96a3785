"""All routes of the console."""

from django.urls import include, path

handler400 = "console.pages.errors.bad_request"
handler404 = "console.pages.errors.not_found"
handler500 = "console.pages.errors.server_error"
urlpatterns = [path("", include("console.pages.urls")), path("api/", include("console.api.urls"))]
