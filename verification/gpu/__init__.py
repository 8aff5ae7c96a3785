"""Lease, NVML and hand-over on a real NVIDIA GPU; PyTorch stands in for TensorFlow in the runner."""
