"""Protobuf messages that hold tensors, read and written without a loop over elements."""
