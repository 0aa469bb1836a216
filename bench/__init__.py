"""The benchmark of Esclusa beside other queues and beside the bare database. See README.md."""

import sys
from pathlib import Path

# The servers in tests/support and the sample data of the console's tests are used here too.
sys.path.append(str(Path(__file__).parents[1] / "tests"))
