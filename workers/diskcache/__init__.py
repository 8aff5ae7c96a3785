"""Files of model versions on this host: fetched, verified, and kept in one bounded folder for all its workers."""
