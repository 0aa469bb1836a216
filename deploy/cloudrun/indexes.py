"""Print ``firestore.indexes.json`` for the configured pipelines, without connecting to Firestore.

``ESCLUSA_STORE=firestore://project ESCLUSA_PIPELINES=… python indexes.py``. Queries of a pipeline
besides its stages are included if they are declared with ``index=``, ``app.asks`` or ``app.parts``.
"""

import json

from esclusa.app import store_for
from esclusa.artifacts import open_artifacts
from esclusa.engine.engine import Engine
from esclusa.settings import load
from esclusa.stores.firestore import indexes_for

settings = load()
engine = Engine(store_for(settings), settings.plans, open_artifacts(settings.artifacts))
print(json.dumps(indexes_for(engine.plans), indent=2))
