"""The coprocess protocol: our .proto and the stubs made from it by ``python -m gateway_plugin.proto``."""
