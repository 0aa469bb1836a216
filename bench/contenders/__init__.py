"""One module per contender, each run as processes of its own by the driver: see common.py for the roles."""
