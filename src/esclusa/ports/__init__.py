"""Protocols of what the engine needs: store, artifacts, publisher, telemetry."""
