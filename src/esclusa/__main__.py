"""``python -m esclusa`` is the command ``esclusa``."""

from esclusa.app import main

main()
