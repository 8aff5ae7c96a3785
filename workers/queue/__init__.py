"""Jobs from the queues of JetStream to this worker, and what is acknowledged out of them."""
