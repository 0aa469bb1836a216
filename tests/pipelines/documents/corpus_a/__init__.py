"""Statements in the manner of companies of several countries, written apart from the rules.

The rules were later changed to fix misses in this corpus.
"""

from pipelines.documents.corpus_a.countries import documents

__all__ = ["documents"]
