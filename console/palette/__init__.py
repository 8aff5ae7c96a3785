"""The command palette: things, pages and acts found by name. It leads to pages and forms, and acts on nothing."""
