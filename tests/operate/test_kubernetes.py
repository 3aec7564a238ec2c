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

OVERLAYS = ("central", "sidecar", "sharded", "insecure")
SECRETS = "tls.secretName=msprobe-server-tls,tokens.secretName=msprobe-server-tokens"
BARE = "monitoring.enabled=false,monitoring.dashboards=false,networkPolicy.enabled=false"
CHARTS = {
    "secure": ("--set", SECRETS),
    "certificates": ("--set", "tls.secretName=certificates,tls.clientCa=ca.crt"),
    "sharded": ("--set", f"{SECRETS},replicas=3,persistence.storageClassName=fast,nodeSelector.disk=nvme"),
    "page": ("--set", f"{SECRETS},web.enabled=true,imagePullSecrets[0].name=pull,persistence.existingClaim=old"),
    "insecure": ("--set", f"insecure=true,replicas=2,{BARE}"),
}
KUBERNETES = "1.33"
DRAIN_S = 10 + 60 + 5 + 30  # streams, exports, requests, the last sync: server/app/server.cc


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
    """Each of several pods finds itself by its host name in the list of all."""
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


@pytest.mark.parametrize("overlay", ["central", "sharded", "insecure"])
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
    assert secrets == (set() if overlay == "insecure" else {"msprobe-server-tls", "msprobe-server-tokens"})


def test_chart_and_kustomization_run_the_same_container(deploy, kubectl, helm):
    def server(kind, name):
        resources = yaml.safe_load_all(rendered(kind, name, deploy, kubectl, helm))
        (stateful_set,) = [r for r in resources if r and r["kind"] == "StatefulSet"]
        (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
        return container

    assert server("kustomize", "central") == server("helm", "secure")


def settings_of(resources):
    """name -> value of the one server.conf."""
    (text,) = [r["data"]["server.conf"] for r in resources if r and "server.conf" in r.get("data", {})]
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def test_only_what_says_so_is_open_to_strangers(request, resources, manifest):
    name = request.node.callspec.params["manifest"]
    settings = settings_of(resources)
    if "sidecar" in name:
        assert settings["listen"].startswith("unix:") and "insecure" not in settings
    elif "insecure" in name:
        assert settings["insecure"] == "true"
    else:
        assert "insecure" not in settings and settings["tls_cert"] and settings["tls_key"]
        assert settings.get("tokens") or settings.get("tls_client_ca")
        for _, pod in workloads(resources):
            modes = [volume["secret"]["defaultMode"] for volume in pod["volumes"] if "secret" in volume]
            assert modes and all(mode & 0o007 == 0 for mode in modes), "a Secret that others could read"


def test_what_is_kept_fits_the_volume(request, resources):
    """Bounds for a volume of 200 GiB, and for a single run, which is never removed while it captures."""
    settings = settings_of(resources)
    if "sidecar" in request.node.callspec.params["manifest"]:
        assert int(settings["run_quota_mib"]) < 32 * 1024, "of its emptyDir"
        return
    assert int(settings["retain_mib"]) == 200 * 1024 * 4 // 5
    assert int(settings["run_quota_mib"]) == 200 * 1024 * 2 // 5


def chart(helm, deploy, *values):
    sets = [word for value in values for word in ("--set", value)]
    command = (helm, "template", "release", deploy / "helm" / "msprobe-server", *sets)
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (("persistence.size=1.5Ti",), ("1258291", "629145")),
        (("persistence.size=100G",), ("76293", "38146")),
        (("persistence.size=500Mi",), ("400", "200")),
        (("settings.retain_mib=0", "settings.run_quota_mib=5"), ("0", "5")),
        (("settings.retain_mib=2000000000",), ("2000000000", "81920")),
    ],
)
def test_what_is_kept_follows_the_volume_unless_it_is_said(values, kept, deploy, helm):
    code, said, error = chart(helm, deploy, SECRETS, *values)
    assert code == 0, error
    settings = settings_of(list(yaml.safe_load_all(said)))
    assert (settings["retain_mib"], settings["run_quota_mib"]) == kept


def test_the_page_has_a_port_where_it_is_wanted(deploy, helm):
    resources = [r for r in yaml.safe_load_all(rendered("helm", "page", deploy, None, helm)) if r]
    assert settings_of(resources)["web_listen"] == "0.0.0.0:8080"
    ((stateful_set, pod),) = workloads(resources)
    assert {"name": "web", "containerPort": 8080} in pod["containers"][0]["ports"]
    service = next(r for r in resources if r["kind"] == "Service" and r["spec"].get("clusterIP") != "None")
    assert {"name": "web", "port": 8080, "targetPort": "web"} in service["spec"]["ports"]
    (policy,) = [r for r in resources if r["kind"] == "NetworkPolicy"]
    assert [8080] in [[port["port"] for port in rule["ports"]] for rule in policy["spec"]["ingress"]]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "old"}} in pod["volumes"]
    assert "volumeClaimTemplates" not in stateful_set["spec"]


def test_the_schema_knows_every_setting(deploy, server_binary, tmp_path):
    schema = json.loads((deploy / "helm" / "msprobe-server" / "values.schema.json").read_text())
    said = output_of(server_binary, f"--data_dir={tmp_path}", "--check_config")
    assert set(schema["properties"]["settings"]["properties"]) == {line.split(" = ")[0] for line in said.splitlines()}


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
        ("", "tls.secretName is empty: name a Secret with tls.crt and tls.key, or set insecure=true"),
        ("tokens.secretName=t", "tls.secretName is empty: tokens would be readable on their way"),
        ("tokens.secretName=t,insecure=true", "tls.secretName is empty: tokens would be readable on their way"),
        ("tls.secretName=c", "tokens.secretName is empty: name a Secret with tokens, or the authorities of clients"),
        (f"{SECRETS},replicas=3,tls.shardCa=", "tls.shardCa is empty: several servers know each other by certificates"),
        (f"{SECRETS},replicas=3,tokens.shardToken=", "tokens.shardToken is empty: several servers show each other"),
        (f"{SECRETS},replicas=3,persistence.existingClaim=a", "persistence.existingClaim is for one server"),
        (f"{SECRETS},settings.listen=0.0.0.0:1", "settings.listen is written by the chart"),
        (f"{SECRETS},settings.insecure=true", "settings.insecure is written by the chart"),
        (f"{SECRETS},settings.retain_days=abc", "at '/settings/retain_days': got string, want number"),
        (f"{SECRETS},settings.retain_days=-1", "at '/settings/retain_days': minimum: got -1, want 0"),
        (f"{SECRETS},settings.retain_mib=many", "at '/settings/retain_mib': got string, want integer"),
        (f"{SECRETS},settings.memory_limit=1GB", "at '/settings/memory_limit': '1GB' does not match"),
        (f"{SECRETS},settings.log_level=loud", "at '/settings/log_level': value must be one of 'debug'"),
        (f"{SECRETS},settings.retain_day=3", "at '/settings': additional properties 'retain_day' not allowed"),
        (f"{SECRETS},persistence.size=banana", "at '/persistence/size': 'banana' does not match"),
        (f"{SECRETS},persistence.size=200", "at '/persistence/size': got number, want string"),
        (f"{SECRETS},replicas=0", "at '/replicas': minimum: got 0, want 1"),
        (f"{SECRETS},tls.secretName=A_B", "at '/tls/secretName': 'A_B' does not match"),
        (f"{SECRETS},imagePullSecrets[0]=pull", "at '/imagePullSecrets/0': got string, want object"),
        (f"{SECRETS},resources.limits.memory=lots", "at '/resources/limits/memory': 'lots' does not match"),
        (f"{SECRETS},image.tag=latest", "/image/tag"),
        (f"{SECRETS},replica=3", "additional properties 'replica' not allowed"),
    ],
)
def test_the_chart_refuses_what_is_wrong(values, why, deploy, helm):
    code, _, said = chart(helm, deploy, values)
    assert code != 0 and why in said


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
        (tmp_path / "shard-token").write_text("0123456789abcdef0123456789abcdef\n")
        secure = {"MSPROBE_SHARD_CA": f"{tmp_path}/ca.crt", "MSPROBE_SHARD_TOKEN_FILE": f"{tmp_path}/shard-token"}
        for pod, shards in pods_of_shards(yaml.safe_load_all(manifest)):
            cluster = {**os.environ, "MSPROBE_SHARDS": shards, "MSPROBE_THIS_SHARD": pod}
            if "tls_cert" in text:
                assert all(f"name: {name}" in manifest for name in secure)
                cluster |= secure
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
