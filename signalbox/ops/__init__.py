"""What runs and tends a Signalbox: its programs' logs, and what operators do from a shell."""
