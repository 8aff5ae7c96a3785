"""What every program needs before it does anything: settings, log, errors, metrics, and what watches its event loop."""
