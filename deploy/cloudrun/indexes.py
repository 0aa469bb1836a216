"""Print firestore.indexes.json for the pipelines that are set: ``ESCLUSA_STORE=firestore://project ESCLUSA_PIPELINES=… python indexes.py``.

Nothing is connected to. What a pipeline asks besides its stages is declared with its records (``index=``) or by ``app.asks`` and
``app.parts``, and is in it.
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
