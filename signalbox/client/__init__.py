"""The API client, on httpx: the extra ``client``."""

from signalbox.client.client import Client, JobStatus, SyncClient

__all__ = ["Client", "JobStatus", "SyncClient"]
