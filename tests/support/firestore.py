"""Google's Firestore emulator."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from .emulator import Emulator


class FirestoreEmulator(Emulator):
    """One emulator for all databases."""

    NAME = "Firestore"
    HOST = "FIRESTORE_EMULATOR_HOST"
    JAR = "FIRESTORE_EMULATOR_JAR"
    PROGRAM = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
    MAIN = ("com.google.cloud.datastore.emulator.firestore.CloudFirestore", "start")
    OPTIONS = ("-Xmx1g",)

    def documents(self, project: str) -> list[dict[str, Any]]:
        """The documents of a project's collections, without those below other documents."""
        top = f"projects/{project}/databases/(default)/documents"
        ids = self._call(f"{top}:listCollectionIds", {"pageSize": 1000}).get("collectionIds", [])
        found = [self._call(f"{top}/{id}?pageSize=1000") for id in ids]
        assert not any("nextPageToken" in page for page in found)
        return [document for page in found for document in page.get("documents", [])]

    def copy(self, documents: list[dict[str, Any]], project: str) -> None:
        """Write documents of one project into another."""
        writes = []
        for document in documents:
            _, _, below = document["name"].partition("/databases/")
            name = f"projects/{project}/databases/{below}"
            writes.append({"update": {"name": name, "fields": document["fields"]}})
        self._call(f"projects/{project}/databases/(default)/documents:commit", {"writes": writes})

    def _call(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://{self.host}/v1/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": "Bearer owner", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def reset(self, project: str, database: str = "(default)") -> None:
        """Delete all documents of a project's database."""
        address = (
            f"http://{self.host}/emulator/v1/projects/{project}/databases/{database}/documents"
        )
        urllib.request.urlopen(urllib.request.Request(address, method="DELETE"), timeout=30).close()

    def answers(self, port: int) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2).close()
        except OSError:
            return False
        return True
