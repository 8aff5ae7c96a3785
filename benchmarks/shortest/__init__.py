"""The shortest path that answers durably, measured beside all of Signalbox."""
