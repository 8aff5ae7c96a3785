"""Jobs as database rows, written by the projector: search, detail, timeline, cancel."""
