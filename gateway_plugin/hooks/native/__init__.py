"""The server half of HTTP/2, our own under the hooks (docs/adr/0140)."""
