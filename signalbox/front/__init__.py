"""Bounds of size, number and time on what clients send, applied before it is parsed.

:mod:`framing` reads where a request begins and ends, :mod:`connections` counts, :mod:`gate` joins both with
asyncio and any ASGI server, :mod:`bounds` holds the settings. :mod:`jsonbody` parses the body of a request.
"""
