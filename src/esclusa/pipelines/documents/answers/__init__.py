"""Answers of Document AI as extractions: entities of any shape, with their places."""
