"""The web console: pages made on the server that show every record and let an operator act.

Every page works without scripts; scripts add live counts.
"""
