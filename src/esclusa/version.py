"""The version of Esclusa."""

__version__ = "0.1.0"
