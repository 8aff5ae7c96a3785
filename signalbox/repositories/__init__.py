"""Where models lie: URLs, object stores, folders, and which models are in them. Console and workers share it."""
