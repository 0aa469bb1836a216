"""Shared by tests and benchmarks: real servers, each stopped by its own process handle."""
