"""What runs and tends a Signalbox: its programs' logs."""
