"""The documentation: its Python reference and its site. Run it with ``python -m tools.docs``."""
