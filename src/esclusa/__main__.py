"""Runs the command ``esclusa`` as ``python -m esclusa``."""

from esclusa.app import main

main()
