"""Model versions in the device's memory: which are there, which leave, and what the runner does with them now."""
