"""The files of ``deploy/``: each names ports, paths and variables as the others and the gateway do."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from stratacache.cli import build_parser
from stratacache.settings import load

DEPLOY = Path(__file__).parents[2] / "deploy"
SECRETS = {"OPENAI_API_KEY": "k", "STRATACACHE_SECRET": "s" * 64}
CONTAINER = (DEPLOY / "Containerfile").read_text()
CONFIG = "/etc/stratacache/stratacache.yaml"


def manifests() -> dict[str, Any]:
    text = (DEPLOY / "kubernetes" / "stratacache.yaml").read_text()
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def test_the_configuration_is_one_that_the_gateway_takes() -> None:
    settings = load(str(DEPLOY / "stratacache.yaml"), SECRETS)
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 8900)
    assert settings.auth is not None
    assert settings.auth.secret_env == "STRATACACHE_SECRET"


def test_the_container_starts_the_gateway_as_nobody_special() -> None:
    entry = re.search(r'ENTRYPOINT \["(\w+)"\]\nCMD \[(.*)\]', CONTAINER)
    assert entry is not None
    arguments = yaml.safe_load(f"[{entry[2]}]")
    assert entry[1] == "stratacache"
    assert build_parser().parse_args(arguments).config == CONFIG
    assert "USER 10001" in CONTAINER
    assert "EXPOSE 8900" in CONTAINER
    assert "/healthz" in CONTAINER


def test_compose_agrees_with_container_and_configuration() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    gateway = compose["services"]["gateway"]
    assert (DEPLOY / gateway["build"]["context"] / gateway["build"]["dockerfile"]).is_file()
    assert gateway["ports"] == ["127.0.0.1:8900:8900"]
    assert set(gateway["environment"]) == set(SECRETS)
    assert f"./stratacache.yaml:{CONFIG}:ro" in gateway["volumes"]
    assert (DEPLOY / "stratacache.yaml").read_text().count("redis://valkey:6379") == 1
    named = {each.split(":")[0] for one in compose["services"].values() for each in one["volumes"]}
    assert {name for name in named if not name.startswith(".")} == compose["volumes"].keys()


def test_the_deployment_agrees_with_container_and_configuration() -> None:
    made = manifests()
    pod = made["Deployment"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    assert container["ports"] == [{"name": "http", "containerPort": 8900}]
    probes = {container[f"{name}Probe"]["httpGet"]["path"] for name in ("readiness", "liveness")}
    assert probes == {"/readyz", "/healthz"}
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert f"{mounted['config']}/stratacache.yaml" == CONFIG
    assert mounted.keys() == {one["name"] for one in pod["spec"]["volumes"]}
    assert pod["spec"]["securityContext"]["runAsUser"] == 10001
    labels = pod["metadata"]["labels"]
    selectors = (
        made["Deployment"]["spec"]["selector"]["matchLabels"],
        made["Service"]["spec"]["selector"],
        made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    )
    assert all(selector == labels for selector in selectors)


def test_the_unit_starts_and_reloads_the_gateway() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "systemd" / "stratacache.service")
    service = unit["Service"]
    program, *arguments = service["ExecStart"].split()
    assert Path(program).name == "stratacache"
    assert build_parser().parse_args(arguments).config == CONFIG
    assert "-HUP" in service["ExecReload"]
    assert service["KillMode"] == "mixed"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd" / "stratacache.service").read_text()
    copy = tmp_path / "stratacache.service"
    copy.write_text(unit.replace("/opt/stratacache/bin/stratacache", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    assert "stratacache.service" not in done.stderr
