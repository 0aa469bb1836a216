"""Deployment files: a small image that does not run as root, and only settings that exist."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from esclusa.loading import BUILT_IN, NoPipeline, load_app
from esclusa.model.options import options_of
from esclusa.observability.metrics import Metrics
from esclusa.pipelines.documents.settings import DocumentsSettings
from esclusa.settings import SYSTEM_OPTIONS, Settings, load

ROOT = Path(__file__).parents[2]
CLOUDRUN = ROOT / "deploy" / "cloudrun"
INSTRUCTIONS = {
    "FROM",
    "ARG",
    "ENV",
    "RUN",
    "COPY",
    "WORKDIR",
    "USER",
    "EXPOSE",
    "STOPSIGNAL",
    "ENTRYPOINT",
    "CMD",
}
Stage = list[tuple[str, str]]


def stages() -> list[Stage]:
    """The stages of the Dockerfile: instructions with their arguments."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found: list[Stage] = []
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if line.strip():
            instruction, _, argument = line.partition(" ")
            assert instruction in INSTRUCTIONS, line
            if instruction == "FROM":
                found.append([])
            found[-1].append((instruction, argument.strip()))
    return found


def known_settings() -> set[str]:
    names = {name for option in SYSTEM_OPTIONS for name in option.env}
    for pipeline in BUILT_IN:
        try:
            app = load_app(pipeline)
        except NoPipeline:
            continue
        names |= {name for option in options_of(app.settings, app.name) for name in option.env}
    return names | {f"{name}_FILE" for name in names}


def test_the_image_is_small_and_does_not_run_as_root() -> None:
    build, final = stages()
    for stage in (build, final):
        image = stage[0][1].split()[0]
        assert re.fullmatch(r"python:3\.\d+-slim", image)  # official, and a fixed version
    arguments = dict(final)
    assert arguments["USER"].isdigit()
    assert int(arguments["USER"]) > 0
    assert [name for name, _ in final].index("USER") > [name for name, _ in final].index("RUN")
    assert json.loads(arguments["ENTRYPOINT"]) == ["esclusa"]
    assert json.loads(arguments["CMD"]) == ["serve"]
    assert not any("pip install" in argument for name, argument in final if name == "RUN")


def test_dockerignore_admits_exactly_what_is_copied() -> None:
    ignored = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert ignored[0] == "*"
    admitted = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        name
        for stage in stages()
        for instruction, argument in stage
        if instruction == "COPY" and "--from" not in argument
        for name in argument.split()[:-1]
    }
    assert copied == admitted
    # `make lock` writes requirements.lock.
    assert all((ROOT / name).exists() for name in copied - {"requirements.lock"})
    assert any(
        fnmatch.fnmatch("src/esclusa/__pycache__", f"*{line.removeprefix('**')}")
        for line in ignored
    )


def test_every_setting_that_the_image_and_the_service_set_exists() -> None:
    names = known_settings()
    environment = " ".join(text for stage in stages() for name, text in stage if name == "ENV")
    for name in re.findall(r"(ESCLUSA_[A-Z_]+|PORT)=", environment):
        assert name in names, name
    service = yaml.safe_load((CLOUDRUN / "service.yaml").read_text(encoding="utf-8"))
    [container] = service["spec"]["template"]["spec"]["containers"]
    used = {each["name"] for each in container["env"]}
    assert used <= names, used - names
    assert {
        "ESCLUSA_STORE",
        "ESCLUSA_API_TOKENS",
        "ESCLUSA_TICK_AUDIENCE",
        "ESCLUSA_TICK_SERVICE_ACCOUNT",
    } <= used
    assert container["ports"][0]["containerPort"] == int(re.search(r"PORT=(\d+)", environment)[1])  # type: ignore[index]
    page = (CLOUDRUN / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"ESCLUSA_[A-Z_]+", page)) <= names


def test_documents_fit_in_the_memory_of_the_service() -> None:
    """The kernel kills the whole instance if a document takes more."""
    service = yaml.safe_load((CLOUDRUN / "service.yaml").read_text(encoding="utf-8"))
    [container] = service["spec"]["template"]["spec"]["containers"]
    set_there = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    filled = {n: re.sub(r"\$\{[A-Z]+\}", "my-project", v) for n, v in set_there.items()}
    wanted = {"ESCLUSA_PIPELINES": "documents"}
    [plan] = load(environ=filled | wanted).plans
    settings = plan.settings
    assert isinstance(settings, DocumentsSettings)
    gigabytes = re.fullmatch(r"(\d+)Gi", container["resources"]["limits"]["memory"])
    assert gigabytes is not None
    processes = (settings.local_processes + 1) * settings.reader_memory_mb
    documents = 3 * settings.max_concurrent_docs * settings.max_document_mb
    assert 256 + processes + documents <= int(gigabytes[1]) * 1024


def test_the_readme_sets_every_variable_of_the_service_file() -> None:
    variables = set(
        re.findall(r"\$\{([A-Z]+)\}", (CLOUDRUN / "service.yaml").read_text(encoding="utf-8"))
    )
    page = (CLOUDRUN / "README.md").read_text(encoding="utf-8")
    assert all(re.search(rf"(export|\s){name}=", page) for name in variables)
    assert all(pipeline in page for pipeline in BUILT_IN)


@pytest.mark.parametrize("pipelines", ["examples/hello.py:app"])
def test_firestore_indexes_are_printed_without_a_connection(
    pipelines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESCLUSA_STORE", "firestore://nowhere")
    monkeypatch.setenv("ESCLUSA_PIPELINES", pipelines)
    command = [sys.executable, str(CLOUDRUN / "indexes.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert {index["collectionGroup"] for index in json.loads(done.stdout)["indexes"]} >= {
        "greetings",
        "esclusa_runs",
    }


DEPLOY = ROOT / "deploy"


def test_every_setting_of_compose_chart_and_units_exists() -> None:
    names = known_settings()
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
    for name in ("migrate", "worker", "server"):
        assert set(compose["services"][name]["environment"]) <= names, name
    values = yaml.safe_load((DEPLOY / "helm" / "esclusa" / "values.yaml").read_text("utf-8"))
    assert set(values["settings"]) <= names
    texts = [
        path.read_text(encoding="utf-8")
        for path in DEPLOY.rglob("*")
        if path.suffix in {".yaml", ".yml", ".md", ".tpl", ".service"}
    ]
    written = set(re.findall(r"\bESCLUSA_[A-Z_]+", "".join(texts)))
    assert written - names == {"ESCLUSA_IMAGE"}  # a variable of the compose file


def test_containers_have_no_rights_and_a_read_only_file_system() -> None:
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
    for name in ("migrate", "worker", "server"):
        service = compose["services"][name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for port in (p for s in compose["services"].values() for p in s.get("ports", ())):
        assert port.startswith("127.0.0.1:"), port
    chart = (DEPLOY / "helm" / "esclusa" / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    for line in (
        "readOnlyRootFilesystem: true",
        "allowPrivilegeEscalation: false",
        "runAsNonRoot: true",
        "capabilities: {drop: [ALL]}",
    ):
        assert line in chart
    for unit in (DEPLOY / "systemd").glob("*.service"):
        assert "NoNewPrivileges=yes" in unit.read_text(encoding="utf-8"), unit.name


def test_dashboard_and_alert_rules_name_metrics_that_exist() -> None:
    known = {metric.name for metric in Metrics().collect()}
    for path in (
        DEPLOY / "grafana" / "dashboard.json",
        DEPLOY / "prometheus" / "esclusa.rules.yml",
    ):
        named = set(re.findall(r"\besclusa_[a-z_]+", path.read_text(encoding="utf-8")))
        assert len(named) > 3
        plain = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in named}
        assert plain <= known, plain - known


def test_processes_are_given_time_to_stop() -> None:
    """A process that is killed earlier leaves its records to their leases."""
    grace = Settings.model_fields["grace_seconds"].default
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
    values = yaml.safe_load((DEPLOY / "helm" / "esclusa" / "values.yaml").read_text("utf-8"))
    waits = [int(compose["services"][n]["stop_grace_period"][:-1]) for n in ("worker", "server")]
    waits.append(values["worker"]["terminationGracePeriodSeconds"])
    for unit in ("esclusa-worker@.service", "esclusa-server.service"):
        text = (DEPLOY / "systemd" / unit).read_text(encoding="utf-8")
        waits.append(int(re.findall(r"TimeoutStopSec=(\d+)", text)[0]))
    assert min(waits) > grace
