"""Lists as files: CSV and JSON lines of exactly what a list's filter finds, written row by row while they are read."""
