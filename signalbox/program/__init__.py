"""What every program needs first: settings, log, errors, metrics, and the watch on its event loop."""
