"""The API client, and the HTTP it speaks."""
