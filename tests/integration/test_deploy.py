"""What is in deploy/ is taken by the tools that read it, and asks for what there is.

No container runs here: the composition is read by docker-compose, the manifests by kustomize and by
the schemas of Kubernetes, and what the Containerfile runs is run in an empty environment.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from omidpy.base.installation import VERSION
from omidpy.cli import main
from tests.machines.containerfile import build
from tests.machines.processes import tso_server
from tests.machines.watching.oracles import address_of_metrics, asked
from tests.machines.watching.promtool import needs_promtool, run_promtool
from tso.choices import ORACLE
from tso.config import load_config

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed")

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
MANIFESTS: Final = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
SCHEMAS: Final = "1.30"
"""Of Kubernetes; what is asked for is older than that."""
LONGEST_S: Final = 900


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of YAML."""
    return [one for one in yaml.safe_load_all(text) if one]


def composed() -> dict[str, Any]:
    """Return the composition, with what its anchors stand for."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def manifests() -> list[dict[str, Any]]:
    """Return what is to be in the cluster, but for what kustomize makes."""
    found = [one for path in MANIFESTS for one in documents(path.read_text())]
    return [one for one in found if one["kind"] != "Kustomization"]


def containers(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the containers of a manifest, wherever they are."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "containers":
                yield from value
            else:
                yield from containers(value)


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return the pod that a manifest describes."""
    spec = document["spec"]
    spec = spec["jobTemplate"]["spec"] if document["kind"] == "CronJob" else spec
    pod: dict[str, Any] = spec["template"]["spec"]
    return pod


# -- images ----------------------------------------------------------------------------------------


def images() -> Iterator[str]:
    """Yield the name of every image that is asked for."""
    for path in DEPLOY.rglob("Containerfile"):
        yield from re.findall(r"^FROM (\S+)", path.read_text(), re.MULTILINE)
    for service in composed()["services"].values():
        yield re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", service["image"])
    for one in manifests():
        yield from (container["image"] for container in containers(one))


def test_images_are_named_without_a_registry() -> None:
    """Where they come from is the business of the machine that pulls them."""
    found = set(images())
    assert len(found) > 6
    hosts = [name for name in found if "/" in name and re.search(r"[.:]", name.split("/")[0])]
    assert hosts == []


def test_the_image_is_no_root_and_tells_of_its_health() -> None:
    """Two stages: the compiler stays in the first."""
    text = (DEPLOY / "Containerfile").read_text()
    *_, last = text.split("\nFROM ")
    assert text.count("\nFROM ") == 2
    assert "gcc" not in last
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*\n.*health\.py\", \"/readyz\"\]$", last, re.MULTILINE)
    copied = re.findall(r"/src/(deploy/recipe/\S+)", text)
    assert copied
    assert [path for path in copied if not (ROOT / path).is_file()] == []


def environment_of_image() -> dict[str, str]:
    """Return what the image sets."""
    text = (DEPLOY / "Containerfile").read_text()
    (block,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    return dict(re.findall(r"(\w+)=(\S+)", block))


def test_a_container_asks_its_oracle_how_it_is(tmp_path: Path) -> None:
    """It is well while it leads, and not once it is gone."""
    ask = [sys.executable, str(DEPLOY / "recipe" / "health.py"), "/readyz"]
    with tso_server(f"sqlite:///{tmp_path}/s.db", "--metrics", "127.0.0.1:0") as server:
        assert server.address
        found = {**os.environ, "TSO_METRICS": address_of_metrics(server)}
        assert subprocess.run(ask, env=found, timeout=60, check=False).returncode == 0
        with tso_server(f"sqlite:///{tmp_path}/s.db", "--metrics", "127.0.0.1:0") as standby:
            standby.wait_for("^standby ")
            assert [asked(standby, page)[0] for page in ("/healthz", "/readyz", "/livez")] == [
                503,
                200,
                200,
            ]
        server.kill()
        done = subprocess.run(ask, env=found, timeout=60, check=False, capture_output=True)
        assert (done.returncode, b"/readyz" in done.stderr) == (1, True)


@pytest.mark.nightly
def test_the_recipe_of_the_image_runs_in_an_empty_environment(tmp_path: Path) -> None:
    """What it installs serves a store and compacts it; nothing of this checkout is in reach."""
    kept = ("PATH", "HOME", "PIP_CONFIG_FILE", "PIP_CACHE_DIR", "SSL_CERT_FILE")
    bare = {name: os.environ[name] for name in kept if name in os.environ}
    bare["PYTHON"] = sys.executable
    recipe = DEPLOY / "recipe"

    def run(*words: str) -> str:
        done = subprocess.run(
            ["env", "-i", *(f"{name}={value}" for name, value in bare.items()), *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("sh", str(recipe / "wheels.sh"), str(ROOT), str(tmp_path / "wheels"))
    made = run("sh", str(recipe / "install.sh"), str(tmp_path / "wheels"), str(tmp_path / "opt"))
    assert made.startswith("omidpy ")
    program = str(tmp_path / "opt" / "bin" / "python")
    code = "import tso.core.engine as e, omidpy; print(e.is_compiled(), omidpy.__file__)"
    is_compiled, where = run(program, "-c", code).split()
    assert (is_compiled, where.startswith(str(tmp_path))) == ("True", True)
    store = f"sqlite:///{tmp_path}/s.db"
    script = (
        f"opt/bin/tso-server --store {store} --listen 127.0.0.1:0 & sleep 3; kill -TERM $!; wait $!"
    )
    run("sh", "-c", script)
    assert "compaction done" in run("opt/bin/omidpy", "compact", "--store", store)


# One oracle, asked as the runtime asks it, and what somebody on call runs beside it.
IN_THE_IMAGE: Final = """set -e
id -u
if touch /written 2>/dev/null || command -v gcc; then exit 1; fi
{command} &
until {health} 2>/dev/null; do kill -0 $! && sleep 0.2; done
omidpy table create t --families cf --store "$TSO_STORE" --tso 127.0.0.1:24758 --apply
omidpy doctor --store "$TSO_STORE"
python -c 'import omidpy.console.serving'
omidpy verify --store sqlite:///verified.db --duration 3s
kill -TERM $!
wait $!
omidpy compact --store "$TSO_STORE"
"""


@pytest.mark.nightly
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("debootstrap", "unshare", "ip"))),
    reason="needs root and debootstrap (Debian: debootstrap, iproute2)",
)
def test_the_containerfile_is_done_in_fresh_roots(tmp_path: Path) -> None:
    """It is built where a compiler is, and runs where none is, in a root that is read-only."""
    reach = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name == "SSL_CERT_FILE"
    }
    image = build(DEPLOY / "Containerfile", tmp_path, reach)
    script = IN_THE_IMAGE.format(command=shlex.join(image.command), health=shlex.join(image.health))
    variables = {
        **image.environment,
        "TSO_STORE": "sqlite:////var/lib/omidpy/s.db",
        "TSO_INSECURE": "true",
    }
    said = image.run_read_only(script, variables=variables)
    assert said.startswith("10001\n")
    assert "the oracle's engine compiled" in said
    assert '"event": "stopped"' in said
    assert "compaction done" in said


# -- the composition -------------------------------------------------------------------------------


@pytest.mark.skipif(
    shutil.which("docker-compose") is None,
    reason="docker-compose is not installed (Debian: docker-compose)",
)
def test_docker_compose_takes_the_composition() -> None:
    """With the job of the night."""
    words = ["docker-compose", "-f", str(DEPLOY / "compose.yaml"), "--profile", "night", "config"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = documents(done.stdout)
    assert made["services"].keys() == composed()["services"].keys()


def test_the_composition_is_whole() -> None:
    """Every file that it mounts is there; the oracle has a standby, and both are watched."""
    services = composed()["services"]
    assert {"zookeeper", "oracle", "standby", "prometheus", "grafana", "compact"} <= set(services)
    assert services["compact"]["profiles"] == ["night"]
    for service in services.values():
        for volume in service.get("volumes", ()):
            if volume.startswith("."):
                assert (DEPLOY / volume.split(":")[0]).exists(), volume
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    watched = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (oracles, _) = watched["scrape_configs"]
    assert oracles["static_configs"][0]["targets"] == ["oracle:24759", "standby:24759"]
    for path in watched["rule_files"]:
        assert (DEPLOY / "prometheus" / Path(path).name).is_file()
        mounted = f"./prometheus/{Path(path).name}:{path}:ro"
        assert mounted in services["prometheus"]["volumes"]


@pytest.mark.parametrize("name", ["oracle", "standby"])
def test_oracles_of_the_composition_have_settings_that_are_taken(name: str) -> None:
    """By the very function that reads them; the clients' address is the service's name."""
    service = composed()["services"][name]
    known = {one.envvar for one in ORACLE}
    found = {**environment_of_image(), **service["environment"]}
    assert {key for key in found if key.startswith("TSO_")} <= known
    config = load_config([], found)
    assert config.advertise == (name, 24758)
    assert config.metrics == ("0.0.0.0", 24759)
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]


@needs_promtool
def test_promtool_takes_the_configuration_of_prometheus() -> None:
    """But for the files of rules, which are elsewhere in the container."""
    path = DEPLOY / "prometheus" / "prometheus.yml"
    done = run_promtool("check", "config", "--syntax-only", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


# -- Kubernetes ------------------------------------------------------------------------------------


def test_manifests_are_those_of_kubernetes() -> None:
    """By its schemas, which know every field."""
    validating = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    for one in manifests():
        validating.validate(one, SCHEMAS, strict=True)


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl 1.22 or newer is not installed"
)
def test_kustomize_takes_the_base() -> None:
    """And what it makes of it is that of Kubernetes, too."""
    validating = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    done = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY / "kubernetes")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = documents(done.stdout)
    for one in made:
        validating.validate(one, SCHEMAS, strict=True)
    kinds = sorted(one["kind"] for one in made)
    assert kinds == sorted([*(one["kind"] for one in manifests()), "ConfigMap"])
    text = done.stdout
    assert f"image: omidpy:{VERSION}" in text
    (name,) = re.findall(r"name: (omidpy-store-\w+)\n  namespace", text)
    assert text.count(name) == 3


def test_the_base_lists_every_manifest() -> None:
    """One that is forgotten is never applied."""
    base = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
    assert sorted([*base["resources"], "kustomization.yaml"]) == [one.name for one in MANIFESTS]


def test_two_oracles_stand_behind_the_lease() -> None:
    """A standby passes the probes; one at a time may be taken away; the lease names a pod."""
    by_kind = {one["kind"]: one for one in manifests()}
    oracle, budget = by_kind["StatefulSet"], by_kind["PodDisruptionBudget"]
    assert oracle["spec"]["replicas"] == 2
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == oracle["spec"]["selector"]
    (container,) = containers(oracle)
    paths = {
        name: container[name]["httpGet"]["path"]
        for name in ("livenessProbe", "readinessProbe", "startupProbe")
    }
    assert paths == {
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
        "startupProbe": "/livez",
    }
    environment = {
        one["name"]: one.get("value", "hbase://zookeeper:2181/hbase") for one in container["env"]
    }
    found = {key: value for key, value in environment.items() if key.startswith("TSO_")}
    assert set(found) <= {one.envvar for one in ORACLE}
    found["TSO_ADVERTISE"] = re.sub(r"\$\(\w+\)", "tso-0", found["TSO_ADVERTISE"])
    config = load_config([], {**environment_of_image(), **found})
    assert config.advertise == ("tso-0.tso.tso-0.svc", 24758)
    assert config.tls is not None
    assert config.tls.client_ca is not None
    assert not config.has_secure_metrics, "the kubelet shows no certificate"


def on_the_page() -> list[list[str]]:
    """Return the commands of kubectl that the guide prints, in their order."""
    page = (ROOT / "docs" / "guide" / "deploy.md").read_text("utf-8").replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in re.findall(r"^\$ (kubectl .*)$", page, re.MULTILINE)]


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl 1.22 or newer is not installed"
)
def test_the_guide_makes_each_secret_that_a_pod_mounts(tmp_path: Path) -> None:
    """In a namespace that is there by then, with each file that a pod is told of."""
    first, *secrets, last = on_the_page()
    assert first == ["apply", "--filename", "deploy/kubernetes/namespace.yaml"]
    assert last == ["apply", "--kustomize", "deploy/kubernetes"]
    made = {}
    for words in secrets:
        for name in re.findall(r"=[\w.]+=(\S+)", " ".join(words)):
            (tmp_path / name).touch()
        done = subprocess.run(
            ["kubectl", *words, "--dry-run=client", "--output=json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        secret = json.loads(done.stdout)
        assert secret["metadata"]["namespace"] == "omidpy"
        assert secret["type"] == "kubernetes.io/tls"
        made[secret["metadata"]["name"]] = set(secret["data"])
    mounted = {
        volume["secret"]["secretName"]: set(re.findall(r"/tls/([\w.]+)", str(pod_of(one))))
        for one in manifests()
        if one["kind"] in {"StatefulSet", "CronJob"}
        for volume in pod_of(one)["volumes"]
        if "secret" in volume
    }
    assert len(mounted) == 2
    assert made == mounted


def test_pods_may_do_little() -> None:
    """Not root, nothing to write but volumes, no capability, no token."""
    for one in manifests():
        if one["kind"] not in {"StatefulSet", "CronJob"}:
            continue
        pod = pod_of(one)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            may = container["securityContext"]
            assert may["readOnlyRootFilesystem"] is True
            assert may["allowPrivilegeEscalation"] is False
            assert may["capabilities"] == {"drop": ["ALL"]}
            volumes = {volume["name"] for volume in pod["volumes"]}
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def nightly_commands() -> list[list[str]]:
    """Return the commands of the night: of the composition, and of Kubernetes."""
    (job,) = [one for one in manifests() if one["kind"] == "CronJob"]
    (container,) = containers(job)
    (script,) = container["args"]
    composed_words: list[str] = composed()["services"]["compact"]["command"]
    return [composed_words, shlex.split(script.partition(" || ")[0])]


def test_the_jobs_of_the_night_ask_for_options_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody looks at them when they run."""
    with pytest.raises(SystemExit):
        main(["compact", "run", "--help"])
    shown = capsys.readouterr().out
    for words in nightly_commands():
        assert words[:2] == ["omidpy", "compact"]
        options = [one for one in words if one.startswith("--")]
        assert len(options) >= 3
        assert [one for one in options if one not in shown] == []


# -- systemd ---------------------------------------------------------------------------------------


def test_units_are_those_of_the_package() -> None:
    """One place for each: what is installed with the package is what is shown here."""
    shown = {path.name for path in (DEPLOY / "systemd").iterdir()}
    packaged = {path.name for path in (ROOT / "tso" / "deploy").iterdir()}
    assert shown == {name for name in packaged if not name.endswith(".toml")}
    assert all(path.resolve().is_file() for path in (DEPLOY / "systemd").iterdir())
