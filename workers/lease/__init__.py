"""Who may use a GPU: the lease as a state machine, its rules, its waiters."""
