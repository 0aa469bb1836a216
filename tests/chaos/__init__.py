"""Real workers on PostgreSQL under faults, checked from the outside. See README.md."""

import sys
from pathlib import Path

# The servers in tests/support; pytest adds this folder by itself.
sys.path.append(str(Path(__file__).parents[1]))
