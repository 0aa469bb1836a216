"""Check the files of this folder with the tools that read them: `make deploy-check`.

promtool: the alert rules, their tests and the configuration. systemd-analyze: the units. Go
templates with sprig, and Kubernetes' own schemas: the chart. A Prometheus that scrapes a running
server: every expression of the dashboard and of the rules. A tool that is missing is an error.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parent
CHART = HERE / "helm" / "esclusa"
# The oldest version that the chart allows, and a newer one.
KUBERNETES = ("1.28", "1.34")
LEAST = {
    "image": {"repository": "registry.example/esclusa"},
    "pipelines": "media",
    "secretName": "esclusa",
}
EVERYTHING = LEAST | {
    "autoscaling": {"enabled": True},
    "podMonitor": {"enabled": True, "tokenSecretName": "esclusa-metrics"},
    "ingress": {
        "enabled": True,
        "host": "esclusa.example",
        "className": "nginx",
        "tlsSecretName": "tls",
    },
    "serviceAccount": {"annotations": {"example/role": "esclusa"}},
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "batch", "operator": "Exists"}],
}


def run(*command: str | Path, **env: str) -> str:
    """The output of a command; ends the check if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env=os.environ | env,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def report(text: str) -> None:
    print(f"  {text}", flush=True)


def check_prometheus() -> None:
    rules = HERE / "prometheus" / "esclusa.rules.yml"
    run("promtool", "check", "rules", rules)
    run("promtool", "test", "rules", HERE / "prometheus" / "esclusa.test.yml")
    config = HERE / "prometheus" / "prometheus.yml"
    run("promtool", "check", "config", "--syntax-only", config)
    report("prometheus: rules, their tests and the configuration")


def check_systemd(folder: Path) -> None:
    """Verify the units, with a program that is there in the place of the installed one."""
    units = []
    for unit in sorted((HERE / "systemd").glob("*.service")):
        copy = folder / unit.name
        copy.write_text(unit.read_text().replace("/opt/esclusa/bin/esclusa", "/bin/true"))
        units.append(copy)
    run("systemd-analyze", "verify", *units)
    report(f"systemd: {len(units)} units")


def check_chart(folder: Path, validate: str) -> None:
    render = folder / "render"
    go = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(folder / "go")}
    run("go", "build", "-o", render, HERE / "helm" / "render" / "main.go", **go)
    refused = subprocess.run([render, CHART], capture_output=True, text=True, check=False)
    if "image.repository is required" not in refused.stderr:
        sys.exit("the chart renders without its required values")
    for values in (LEAST, EVERYTHING):
        chosen = folder / "values.yaml"
        chosen.write_text(yaml.safe_dump(values))
        manifests = folder / "manifests.yaml"
        manifests.write_text(run(render, CHART, chosen))
        kinds = [each["kind"] for each in yaml.safe_load_all(manifests.read_text()) if each]
        for version in KUBERNETES:
            run(validate, "--strict", "-k", version, manifests)
        report(f"chart: {len(kinds)} manifests, Kubernetes {' and '.join(KUBERNETES)}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


@contextmanager
def running(*command: str | Path, ready: str, **env: str) -> Iterator[None]:
    """A process that is stopped at the end; entered when ``ready`` answers."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | env,
    )
    try:
        for _ in range(150):
            try:
                get(ready)
                break
            except OSError:
                time.sleep(0.2)
        else:
            sys.exit(f"{command[0]} did not answer at {ready}")
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def expressions() -> dict[str, str]:
    """The expressions of the dashboard and of the rules, by the panel or alert that has them."""
    dashboard = json.loads((HERE / "grafana" / "dashboard.json").read_text())
    found = {
        f"{panel['title']} ({target['refId']})": target["expr"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    }
    rules = yaml.safe_load((HERE / "prometheus" / "esclusa.rules.yml").read_text())
    for group in rules["groups"]:
        found |= {rule["alert"]: rule["expr"] for rule in group["rules"]}
    return {
        name: expression.replace("$stage", ".*").replace("$__rate_interval", "1m")
        for name, expression in found.items()
    }


def check_live(folder: Path) -> None:
    """Ask a Prometheus that scrapes a server with work every expression."""
    port, prometheus = free_port(), free_port()
    server = f"http://127.0.0.1:{port}"
    config = folder / "prometheus.yml"
    scrape = {"job_name": "esclusa", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    config.write_text(
        yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]})
    )
    esclusa = Path(sys.executable).parent / "esclusa"
    settings = {
        "ESCLUSA_PIPELINES": f"{ROOT / 'examples' / 'hello.py'}:app",
        "ESCLUSA_STORE": f"sqlite:///{folder / 'esclusa.db'}",
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
    }
    with (
        running(
            esclusa, "serve", "--worker", "--port", str(port), ready=f"{server}/readyz", **settings
        ),
        running(
            "prometheus",
            f"--config.file={config}",
            f"--web.listen-address=127.0.0.1:{prometheus}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            ready=f"http://127.0.0.1:{prometheus}/-/ready",
        ),
    ):
        time.sleep(8)
        known = set(re.findall(r"^# HELP (\w+)", get(f"{server}/metrics"), re.MULTILINE))
        with_data = 0
        for name, expression in expressions().items():
            query = urllib.parse.urlencode({"query": expression})
            answer = json.loads(get(f"http://127.0.0.1:{prometheus}/api/v1/query?{query}"))
            with_data += bool(answer["data"]["result"])
            for metric in re.findall(r"esclusa_\w+", expression):
                plain = re.sub(r"_(bucket|sum|count)$", "", metric)
                if not {plain, plain.removesuffix("_total")} & known:
                    sys.exit(f"{name}: there is no metric {metric}")
    report(f"metrics: {len(expressions())} expressions; {with_data} have data after 8 s")


def main() -> None:
    [validate] = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_prometheus()
        check_systemd(folder)
        check_chart(folder, validate)
        check_live(folder)
    print("the files of deploy/ pass")


if __name__ == "__main__":
    main()
