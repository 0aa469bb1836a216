"""The model: pure declarations, values and decisions, without input or output."""
