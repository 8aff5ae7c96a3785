"""The audit: who did what, when, from where and why. Append-only, written in the transaction of the change."""
