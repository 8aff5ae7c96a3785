"""What callers send and are answered, one module or package for each dialect."""
