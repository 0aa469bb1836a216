"""Statements as companies of several countries print them, made apart from the rules that read them;
rules have been mended by its misses since."""

from pipelines.documents.outsiders.families import outsiders

__all__ = ["outsiders"]
