"""What tests and benchmarks share: real servers, started and stopped by their own handle."""
