"""``signalbox host``: keeps the wanted workers on the devices of one machine, each a child process.

The agent knows workers by their command line and their presence only, so the core still imports none of them.
"""
