"""``signalbox up``: the whole system on this machine, each program a child process of this one.

It knows the programs by their command lines only, so the core still imports none of them.
"""
