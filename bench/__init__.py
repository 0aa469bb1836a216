"""The benchmark: our engine beside its peers and beside what the database itself can do. See README.md."""
