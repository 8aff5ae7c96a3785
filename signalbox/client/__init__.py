"""The Python client of the API, with and without asyncio: a base install, on httpx and numpy alone."""

from signalbox.client.asyncclient import AsyncClient
from signalbox.client.client import Client
from signalbox.client.jobs import Acted, Event, Job, JobError, Refusal, Submission
from signalbox.program import errors

__all__ = ["Acted", "AsyncClient", "Client", "Event", "Job", "JobError", "Refusal", "Submission", "errors"]
