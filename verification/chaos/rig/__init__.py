"""A stack of real programs that faults are caused in."""
