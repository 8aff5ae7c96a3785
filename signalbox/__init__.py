"""The core every Signalbox program shares: names, messages, errors and the bus. No Django, no TensorFlow."""

__version__ = "0.1.0"
