"""The manifests, offline: kustomize and Helm render them, the schemas of Kubernetes accept them, and a policy holds."""

import functools
import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from operate_checks import output_of

OVERLAYS = ("central", "sidecar", "sharded", "tls")
CHARTS = {
    "defaults": (),
    "tls": ("--set", "tls.secretName=certificates,tokens.secretName=tokens,tls.clientCa=ca.crt"),
    "sharded": ("--set", "replicas=3,persistence.storageClassName=fast,nodeSelector.disk=nvme"),
    "bare": ("--set", "monitoring.enabled=false,monitoring.dashboards=false,networkPolicy.enabled=false"),
}
KUBERNETES = "1.33"
DRAIN_S = 10 + 60 + 5 + 30  # streams, exports, requests, the last sync: server/control/server.cc


@functools.cache
def rendered(kind, name, deploy, kubectl, helm):
    if kind == "kustomize":
        return output_of(kubectl, "kustomize", deploy / "kubernetes" / "overlays" / name)
    return output_of(helm, "template", "release", deploy / "helm" / "msprobe-server", *CHARTS[name])


@pytest.fixture(params=[("kustomize", name) for name in OVERLAYS] + [("helm", name) for name in CHARTS], ids="-".join)
def manifest(request, deploy, kubectl, helm):
    return rendered(*request.param, deploy, kubectl, helm)


@pytest.fixture
def resources(manifest):
    return [resource for resource in yaml.safe_load_all(manifest) if resource]


def workloads(resources):
    found = [r for r in resources if r["kind"] in ("StatefulSet", "Deployment")]
    assert found
    return [(resource, resource["spec"]["template"]["spec"]) for resource in found]


def containers(pod):
    return [*pod.get("initContainers", []), *pod["containers"]]


def test_schemas_accept_it(manifest, tmp_path):
    path = tmp_path / "rendered.yaml"
    path.write_text(manifest)
    command = (sys.executable, "-m", "kubernetes_validate", "--strict", "--no-warn", "-k", KUBERNETES, path)
    assert "ERROR" not in output_of(*command)


def test_nothing_runs_as_root_or_may_become_it(resources):
    for resource, pod in workloads(resources):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True and security["runAsUser"] > 0 and security["runAsGroup"] > 0
        assert security["seccompProfile"]["type"] == "RuntimeDefault"
        assert pod["automountServiceAccountToken"] is False
        assert not pod.get("hostNetwork") and not pod.get("hostPID") and not pod.get("hostIPC")
        assert not any("hostPath" in volume for volume in pod["volumes"])
        for container in containers(pod):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False and own["readOnlyRootFilesystem"] is True, resource["kind"]
            assert own["capabilities"] == {"drop": ["ALL"]} and not own.get("privileged")


def test_every_container_has_limits_a_version_and_probes(resources):
    for _, pod in workloads(resources):
        for container in containers(pod):
            for kind in ("requests", "limits"):
                for what in ("cpu", "memory", "ephemeral-storage"):
                    assert container["resources"][kind][what], f"{container['name']} {kind} {what}"
            name, _, tag = container["image"].rpartition(":")
            assert name and re.fullmatch(r"\d+\.\d+\.\d+", tag), container["image"]
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                handlers = {"grpc", "exec", "httpGet", "tcpSocket"} & set(container[probe])
                assert len(handlers) == 1 and "$patch" not in container[probe], f"{container['name']} {probe}"


def test_a_drain_is_waited_for(resources):
    for _, pod in workloads(resources):
        assert pod["terminationGracePeriodSeconds"] > DRAIN_S


def test_every_mount_has_its_volume_and_every_selector_its_pods(resources):
    labels = []
    for resource, pod in workloads(resources):
        template = resource["spec"]["template"]["metadata"]["labels"]
        labels.append(template)
        assert resource["spec"]["selector"]["matchLabels"].items() <= template.items()
        volumes = {volume["name"] for volume in pod["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in resource["spec"].get("volumeClaimTemplates", [])}
        for container in containers(pod):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    configs = {r["metadata"]["name"] for r in resources if r["kind"] == "ConfigMap"}
    for _, pod in workloads(resources):
        assert {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v} <= configs
    for resource in resources:
        spec = resource.get("spec", {})
        selector = {
            "Service": lambda spec: spec["selector"],
            "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
            "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
        }.get(resource["kind"])
        if selector:
            assert any(selector(spec).items() <= pod.items() for pod in labels), resource["kind"]


def pods_of_shards(resources):
    """What each pod of several finds by its host name, and what it is told of all."""
    (stateful_set,) = [r for r in resources if r and r["kind"] in ("StatefulSet", "Deployment")]
    environment = stateful_set["spec"]["template"]["spec"]["containers"][0].get("env", [])
    told = [entry["value"] for entry in environment if entry["name"] == "MSPROBE_SHARDS"]
    if not told:
        assert stateful_set["spec"]["replicas"] == 1
        return []
    shards = told[0].split(",")
    name, service = stateful_set["metadata"]["name"], stateful_set["spec"]["serviceName"]
    assert len(shards) == stateful_set["spec"]["replicas"]
    for number, shard in enumerate(shards):
        assert re.fullmatch(rf"{name}-{number}\.{service}\.[a-z]+\.svc:50051", shard)
    return [(shard, told[0]) for shard in shards]


@pytest.mark.parametrize("overlay", ["central", "sharded", "tls"])
def test_a_server_set_is_complete(overlay, deploy, kubectl):
    resources = list(yaml.safe_load_all(rendered("kustomize", overlay, deploy, kubectl, None)))
    kinds = [resource["kind"] for resource in resources]
    for kind in ("StatefulSet", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"):
        assert kinds.count(kind) == 1, kind
    services = {r["metadata"]["name"]: r["spec"] for r in resources if r["kind"] == "Service"}
    ((stateful_set, pod),) = workloads(resources)
    assert services[stateful_set["spec"]["serviceName"]]["clusterIP"] == "None" and len(services) == 2
    assert stateful_set["spec"]["replicas"] == (3 if overlay == "sharded" else 1)
    assert stateful_set["spec"]["volumeClaimTemplates"]
    dashboards = next(r for r in resources if r["metadata"].get("labels", {}).get("grafana_dashboard"))
    assert {json.loads(text)["uid"] for text in dashboards["data"].values()} == {
        "msprobe-overflow",
        "msprobe-ingest",
        "msprobe-training",
    }
    (monitor,) = [r for r in resources if r["kind"] == "ServiceMonitor"]
    ports = {port["name"] for port in services["msprobe-server"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports
    secrets = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert secrets == ({"msprobe-server-tls", "msprobe-server-tokens"} if overlay == "tls" else set())


def test_chart_and_kustomization_run_the_same_container(deploy, kubectl, helm):
    def server(kind, name):
        resources = yaml.safe_load_all(rendered(kind, name, deploy, kubectl, helm))
        (stateful_set,) = [r for r in resources if r and r["kind"] == "StatefulSet"]
        (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
        return container

    ours, theirs = server("kustomize", "central"), server("helm", "defaults")
    for container in (ours, theirs):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            container[probe].setdefault("timeoutSeconds", 1)
    for probe in ("startupProbe", "readinessProbe"):
        ours[probe]["timeoutSeconds"] = theirs[probe]["timeoutSeconds"]
    assert ours == theirs


def test_the_image_of_the_manifests_is_of_this_version(deploy):
    version = re.search(r"VERSION (\d+\.\d+\.\d+)", (deploy.parent / "CMakeLists.txt").read_text())[1]
    chart = yaml.safe_load((deploy / "helm" / "msprobe-server" / "Chart.yaml").read_text())
    values = yaml.safe_load((deploy / "helm" / "msprobe-server" / "values.yaml").read_text())
    assert {chart["version"], chart["appVersion"], values["image"]["tag"]} == {version}
    for path in (deploy / "kubernetes").rglob("kustomization.yaml"):
        for image in yaml.safe_load(path.read_text()).get("images", []):
            assert image["newTag"] == version, path


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ("tokens.secretName=t", "tokens.secretName needs tls.secretName"),
        ("settings.listen=0.0.0.0:1", "settings.listen is written by the chart"),
        ("image.tag=latest", "/image/tag"),
        ("replica=3", "replica"),
    ],
)
def test_the_chart_refuses_what_is_wrong(values, why, deploy, helm):
    command = (helm, "template", "release", deploy / "helm" / "msprobe-server", "--set", values)
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and why in done.stderr


def test_the_server_takes_the_settings_of_every_manifest(manifest, tmp_path, server_binary):
    """Every server.conf, checked by the server itself, with the paths of the pod moved into a folder."""
    pairs = ("-subj", "/CN=test", "-keyout", tmp_path / "tls.key", "-out", tmp_path / "tls.crt")
    output_of("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *pairs)
    (tmp_path / "tokens").write_text("admin operator 0123456789abcdef0123456789abcdef\n")
    (tmp_path / "ca.crt").write_bytes((tmp_path / "tls.crt").read_bytes())
    seen = 0
    for resource in yaml.safe_load_all(manifest):
        text = (resource or {}).get("data", {}).get("server.conf")
        if text is None:
            continue
        text = re.sub(r"/etc/msprobe-(tls|tokens)/|/var/lib/msprobe/|/run/msprobe/", f"{tmp_path}/", text)
        path = tmp_path / "server.conf"
        path.write_text(text)
        said = output_of(server_binary, f"--config={path}", "--check_config")
        assert f"({path})" in said
        for pod, shards in pods_of_shards(yaml.safe_load_all(manifest)):
            cluster = {**os.environ, "MSPROBE_SHARDS": shards, "MSPROBE_THIS_SHARD": pod}
            assert "MSPROBE_SHARDS" in output_of(server_binary, f"--config={path}", "--check_config", env=cluster)
        seen += 1
    assert seen == 1


def test_the_sidecar_example_configures_the_agent(deploy):
    """The agent's own parser takes config.json, and both sides name one socket."""
    pytest.importorskip("torch")  # whose libraries the extension needs loaded
    from msprobe import _agent

    folder = deploy / "kubernetes" / "overlays" / "sidecar"
    text = (folder / "config.json").read_text()
    parsed = _agent.parse_config(text, task=None, dump_path=None, level=None, step=None)
    assert not parsed.warnings
    assert f"listen = {json.loads(text)['server']}\n" in (folder / "server.conf").read_text()
