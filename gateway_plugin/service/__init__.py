"""What the plugin knows and does for every dialect alike."""
