"""Commands on queues: ``signalbox queues ...``."""
