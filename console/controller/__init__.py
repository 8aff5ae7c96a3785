"""What the controller keeps right in the background: queues, documents, open jobs; and the figures it measures."""
