"""One module per contender. The driver runs each role in a process of its own: see common.py."""
