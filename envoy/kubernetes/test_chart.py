"""The chart of weir-sync, rendered by Helm's own library and held against the schemas of Kubernetes. `make kubernetes` runs
this, in a Python that has both."""

import json
import os
import re
import shutil
import tempfile
import unittest

import helm_python
import kubernetes_validate
import yaml

_HERE = os.path.dirname(os.path.abspath(__file__))
_SOURCE = os.path.join(_HERE, "weir-sync")
# A copy without links: Helm logs each link that it follows.
_CHART = os.path.join(tempfile.mkdtemp(), "weir-sync")
_ROOT = os.path.dirname(os.path.dirname(_HERE))
# The oldest that Chart.yaml allows, and the newest whose schemas there are.
_VERSIONS = ("1.27", kubernetes_validate.latest_version())
# Resources of the Prometheus operator: Kubernetes itself has no schema of theirs.
_OPERATORS = "monitoring.coreos.com/v1"

_SMALL = {}
_LARGE = {
    "region": "fra",
    "replicas": 3,
    "store": "rediss://weir@redis.example",
    "image": {"digest": "sha256:" + "0" * 64, "pullSecrets": [{"name": "registry"}]},
    "settings": {"gateway": "on", "log_level": "warn"},
    "rules": {"rules": [{"name": "per-address", "key": ["client_address"], "rate": "20/s", "burst": 100}]},
    "secrets": {
        name: {"name": f"weir-{name.lower()}"}
        for name in ("tokens", "adminTokens", "checkTokens", "keySecret", "storePassword", "storeAuthorities")
    },
    "tls": {"secretName": "weir-sync-tls", "clientAuthoritiesKey": "ca.crt"},
    "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
    "gateway": {"grpcPort": 7880},
    "networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "scrapeFrom": [{"namespaceSelector": {}}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "serviceAccount": {"annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "edge", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
}


def setUpModule():
    shutil.copytree(_SOURCE, _CHART)
    unittest.addModuleCleanup(shutil.rmtree, os.path.dirname(_CHART))


def _rendered(values):
    """Every resource that the chart makes of `values`, by its kind."""
    with helm_python.Chart.load(_CHART) as chart:
        files = chart.render(values=values, name="weir-sync", namespace="weir")
    texts = [text for path, text in files.items() if not path.endswith("NOTES.txt")]
    return [resource for text in texts for resource in yaml.safe_load_all(text) if resource]


def _one(resources, kind, name="weir-sync"):
    (found,) = [r for r in resources if (r["kind"], r["metadata"]["name"]) == (kind, name)]
    return found


def _settings(resources):
    """What weir-sync reads as its settings."""
    return yaml.safe_load(_one(resources, "ConfigMap")["data"]["weir-sync.yaml"])


def _page():
    with open(os.path.join(_HERE, "README.md"), encoding="utf-8") as file:
        return file.read()


class ThePage(unittest.TestCase):
    def test_its_values_admit_the_gateways_of_both_examples(self):
        (block,) = re.findall(r"```yaml\n(region: .*?)```", _page(), re.DOTALL)
        policy = _one(_rendered(yaml.safe_load(block)), "NetworkPolicy")
        admitted = {
            entry["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
            for entry in policy["spec"]["ingress"][0]["from"]
            if "namespaceSelector" in entry
        }
        with open(os.path.join(_HERE, "istio.yaml"), encoding="utf-8") as file:
            istio = yaml.safe_load(file)["metadata"]["namespace"]
        # Envoy Gateway runs its Envoys in the namespace that it is installed in.
        self.assertEqual(admitted, {istio, "envoy-gateway-system"})

    def test_each_secret_of_its_values_is_made_before_the_chart(self):
        (block,) = re.findall(r"```yaml\n(region: .*?)```", _page(), re.DOTALL)
        before, _ = _page().split("helm install", 1)
        for secret in yaml.safe_load(block)["secrets"].values():
            self.assertIn(f"create secret generic {secret['name']} ", before)


class TheChart(unittest.TestCase):
    def test_helm_accepts_it(self):
        for values in (_SMALL, _LARGE):
            report = helm_python.lint(_CHART, values, strict=True)
            # 1 is a remark.
            self.assertEqual([m for m in report["messages"] if m["severity"] > 1] + report["errors"], [])

    def test_kubernetes_accepts_every_manifest(self):
        for values in (_SMALL, _LARGE):
            for resource in _rendered(values):
                if resource["apiVersion"] == _OPERATORS:
                    continue
                for version in _VERSIONS:
                    with self.subTest(kind=resource["kind"], version=version):
                        kubernetes_validate.validate(resource, version, strict=True)

    def test_an_unknown_field_is_found(self):
        deployment = _one(_rendered(_SMALL), "Deployment")
        deployment["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(deployment, _VERSIONS[-1], strict=True)

    def test_it_has_the_version_of_the_workspace(self):
        with open(os.path.join(_ROOT, "Cargo.toml"), encoding="utf-8") as file:
            (version,) = re.findall(r'^version = "([^"]+)"$', file.read(), re.MULTILINE)
        with helm_python.Chart.load(_CHART) as chart:
            self.assertEqual([chart.version, chart.metadata["appVersion"]], [version, version])

    def test_weir_sync_knows_each_setting_that_it_writes(self):
        with open(os.path.join(_ROOT, "sync-service", "weir-sync.yaml"), encoding="utf-8") as file:
            known = set(re.findall(r"^(?:# )?([a-z_]+): ", file.read(), re.MULTILINE))
        written = _settings(_rendered(_LARGE))
        self.assertEqual(set(written) - known, set())
        self.assertGreater(len(written), 12)

    def test_each_secret_is_mounted_where_the_settings_look_for_it(self):
        resources = _rendered(_LARGE)
        settings = _settings(resources)
        pod = _one(resources, "Deployment")["spec"]["template"]["spec"]
        mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        files = {name: value for name, value in settings.items() if str(value).startswith("/run/secrets/")}
        self.assertEqual(len(files), 9)
        for setting, path in files.items():
            with self.subTest(setting=setting):
                secret = volumes[mounts[os.path.dirname(path)]]["secret"]
                keys = [item["path"] for item in secret.get("items", [])] or ["tls.crt", "tls.key", "ca.crt"]
                self.assertIn(os.path.basename(path), keys)

    def test_invalid_values_are_refused_with_their_place(self):
        for values, sentence in (
            ({"replicas": 2}, "replicas: expected 1 with `store: memory`"),
            ({"replica": 2}, "additional properties 'replica' not allowed"),
            ({"region": "Frankfurt"}, "/region"),
        ):
            with self.subTest(values=values), self.assertRaisesRegex(helm_python.HelmError, re.escape(sentence)):
                _rendered(values)

    def test_prometheus_and_grafana_get_the_repository_s_files(self):
        resources = _rendered(_LARGE)
        rules = _one(resources, "PrometheusRule")["spec"]["groups"]
        alerts = [rule["alert"] for group in rules for rule in group["rules"] if "alert" in rule]
        with open(os.path.join(_CHART, "mixin", "alerts", "fleet.yaml"), encoding="utf-8") as file:
            of_fleet = re.findall(r"- alert: (\S+)", file.read())
        self.assertGreater(len(alerts), len(of_fleet))
        self.assertEqual(set(of_fleet) - set(alerts), set())
        dashboards = _one(resources, "ConfigMap", "weir-sync-dashboards")["data"]
        self.assertIn("panels", json.loads(dashboards["weir.json"]))

    def test_variables_of_kubernetes_are_no_settings(self):
        self.assertIs(_one(_rendered(_SMALL), "Deployment")["spec"]["template"]["spec"]["enableServiceLinks"], False)


if __name__ == "__main__":
    unittest.main()
