"""The engine: claims records, calls handlers, settles outcomes, runs cycles."""
