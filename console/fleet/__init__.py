"""Wishes about workers and queues (drain, pause), and the controller that carries decisions out."""
