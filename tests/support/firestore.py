"""Google's Firestore emulator."""

from __future__ import annotations

import urllib.request

from .emulator import Emulator


class FirestoreEmulator(Emulator):
    """One emulator for all databases."""

    NAME = "Firestore"
    HOST = "FIRESTORE_EMULATOR_HOST"
    JAR = "FIRESTORE_EMULATOR_JAR"
    PROGRAM = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar"
    MAIN = ("com.google.cloud.datastore.emulator.firestore.CloudFirestore", "start")
    HEAP = "1g"

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
