"""What stands between strangers and an HTTP/1.1 server: bounds of size, number and time, before its parser.

:mod:`framing` reads where a request begins and ends, :mod:`connections` counts, :mod:`gate` joins both with
asyncio and any ASGI server, :mod:`bounds` holds the settings.
"""
