"""The coprocess protocol: our .proto and the stubs made from it by ``make proto``."""
