"""Statements as companies of several countries print them, made apart from the rules that read them and only ever measured."""

from pipelines.documents.outsiders.families import outsiders

__all__ = ["outsiders"]
