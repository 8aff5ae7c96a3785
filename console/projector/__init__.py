"""Records of STATE and acceptances become rows. Idempotent on the revision."""
