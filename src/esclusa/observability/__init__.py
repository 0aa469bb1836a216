"""Observability: the structured log, metrics, traces and alerts."""
