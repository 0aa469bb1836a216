"""Versioned SQL files, run in order and never edited once they have run anywhere."""
