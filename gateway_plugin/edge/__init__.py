"""The edge: a small front that stands in for Tyk where no Tyk is.

It reads the files of ``tyk/`` and calls the same plugin: with Tyk's own messages over gRPC, or, in the plugin's own
process, its hooks themselves. It has no feature Tyk lacks; ``tests/conformance`` runs against both. Embedded::

    from gateway_plugin.edge.server import EdgeServer

    server = await EdgeServer.start(gateway.of_edge, listen="127.0.0.1:8080")
    ...
    await server.close()

Over gRPC: ``python -m gateway_plugin.edge --plugin unix:///run/signalbox/plugin.sock``.
"""
