"""Running and operating a Signalbox: its programs' logs, and the commands that operators use from a shell."""
