"""An operator's day in the console: each task in a real browser, with its clicks counted."""
