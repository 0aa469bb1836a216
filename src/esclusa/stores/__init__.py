"""Stores: SQLite, PostgreSQL and Firestore behind the same protocol."""
