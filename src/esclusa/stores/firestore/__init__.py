"""Records as documents of a Firestore database."""

from esclusa.stores.firestore.indexes import firestore_indexes, indexes_for, uncovered
from esclusa.stores.firestore.store import FirestoreStore

__all__ = ["FirestoreStore", "firestore_indexes", "indexes_for", "uncovered"]
