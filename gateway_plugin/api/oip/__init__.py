"""The Open Inference Protocol v2, with Triton's extensions, over REST and gRPC. Its bodies: ``codec``."""
