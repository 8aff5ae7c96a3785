"""The API client, and the HTTP it speaks."""

from signalbox.client.client import Client, JobStatus, SyncClient

__all__ = ["Client", "JobStatus", "SyncClient"]
