"""Esclusa inside other programs: FastAPI, Django, SQLAlchemy, and plain connections."""
