"""The controller: repairs documents and open jobs in the background, and measures storage and rows."""
