"""The console: see everything, fix anything, safely. Pages are made on the server and read without scripts."""
