"""The process that holds a device's lock and ends its runner in time. Standard library only."""
