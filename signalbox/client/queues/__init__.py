"""Durable queues in front of anything: put, get, watch, commit. :meth:`Client.queue` makes one."""

from signalbox.client.queues.asyncqueue import AsyncQueue
from signalbox.client.queues.items import Found, Item, Receipt
from signalbox.client.queues.queue import Queue

__all__ = ["AsyncQueue", "Found", "Item", "Queue", "Receipt"]
