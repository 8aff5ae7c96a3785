"""The program beside the gateway: authenticates, submits and answers through Tyk's coprocess protocol."""
