"""Jobs as rows: search, detail, timeline, cancel. Filled by the projector."""
