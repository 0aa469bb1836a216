"""A model of leases, checked with Spin. See README.md."""
