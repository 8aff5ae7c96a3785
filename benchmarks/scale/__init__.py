"""A fleet that starts at no worker, has work, and goes back to none."""
