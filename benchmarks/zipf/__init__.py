"""Very many models of which few fit into memory, called as Zipf's law says."""
