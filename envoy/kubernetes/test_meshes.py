"""The examples for Istio and Envoy Gateway, held against what Kubernetes takes of their resources. `make kubernetes` runs this;
tests/tests/e2e/kubernetes.rs runs what Envoys get of them."""

import copy
import os
import re
import unittest

import jsonschema
import yaml

_HERE = os.path.dirname(os.path.abspath(__file__))


def _read(*path):
    with open(os.path.join(_HERE, *path), encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


def _problems(resource, schemas):
    validator = jsonschema.Draft202012Validator(schemas[resource["kind"]])
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(resource)]


class TheExamples(unittest.TestCase):
    def setUp(self):
        names = ("istio", "envoy-gateway")
        self.schemas = {name: _read("schemas", f"{name}.yaml")[0] for name in names}
        self.examples = {name: _read(f"{name}.yaml") for name in names}

    def test_kubernetes_accepts_them(self):
        for name, resources in self.examples.items():
            for resource in resources:
                with self.subTest(kind=resource["kind"]):
                    self.assertEqual(_problems(resource, self.schemas[name]), [])

    def test_each_schema_is_valid(self):
        for schemas in self.schemas.values():
            for schema in schemas.values():
                jsonschema.Draft202012Validator.check_schema(schema)

    def _refused(self, name, at, change, sentence):
        resource = copy.deepcopy(self.examples[name][0])
        change(resource["spec"])
        with self.subTest(at=at):
            found = _problems(resource, self.schemas[name])
            self.assertTrue(any(p.startswith(f"{at}: ") and sentence in p for p in found), found)

    def test_a_field_unknown_to_istio_is_found(self):
        for at, change, sentence in (
            ("$.spec", lambda spec: spec.update(pluginconfig={}), "'pluginconfig' was unexpected"),
            ("$.spec", lambda spec: spec.update(targetRefs=[]), "should not be valid"),
            ("$.spec", lambda spec: spec.pop("url"), "'url' is a required property"),
            ("$.spec.phase", lambda spec: spec.update(phase="FIRST"), "is not one of"),
            ("$.spec.failStrategy", lambda spec: spec.update(failStrategy="FAIL_CLOSED"), "is not one of"),
            ("$.spec.url", lambda spec: spec.update(url="ftp://registry.example"), "does not match"),
        ):
            self._refused("istio", at, change, sentence)

    def test_a_field_unknown_to_envoy_gateway_is_found(self):
        for at, change, sentence in (
            ("$.spec", lambda spec: spec.update(targetRef=spec["targetRefs"][0]), "is valid under each of"),
            ("$.spec.wasm[0]", lambda spec: spec["wasm"][0].update(vmId="weir"), "'vmId' was unexpected"),
            ("$.spec.wasm[0].code", lambda spec: spec["wasm"][0]["code"].update(type="HTTP"), "is not valid under any of"),
            ("$.spec.targetRefs[0].kind", lambda spec: spec["targetRefs"][0].update(kind="Service"), "is not one of"),
        ):
            self._refused("envoy-gateway", at, change, sentence)

    def test_both_name_the_module_of_this_version(self):
        with open(os.path.join(_HERE, "..", "..", "Cargo.toml"), encoding="utf-8") as file:
            (version,) = re.findall(r'^version = "([^"]+)"$', file.read(), re.MULTILINE)
        module = f"registry.example/weir-filter:{version}"  # the reader's registry: README.md, Images
        self.assertEqual(self.examples["istio"][0]["spec"]["url"], f"oci://{module}")
        self.assertEqual(self.examples["envoy-gateway"][0]["spec"]["wasm"][0]["code"]["image"]["url"], module)

    def test_the_rule_is_a_label_as_in_a_single_envoy(self):
        patch = yaml.safe_load(self.examples["envoy-gateway"][1]["spec"]["bootstrap"]["value"])
        with open(os.path.join(_HERE, "..", "single", "envoy.yaml"), encoding="utf-8") as file:
            self.assertEqual(patch["stats_config"], yaml.safe_load(file)["stats_config"])

    def test_the_cluster_is_that_of_the_envoy_page(self):
        (cluster,) = yaml.safe_load(self.examples["envoy-gateway"][1]["spec"]["bootstrap"]["value"])["static_resources"]["clusters"]
        with open(os.path.join(_HERE, "..", "..", "docs", "envoy.md"), encoding="utf-8") as file:
            blocks = re.findall(r"```yaml\n(- name: weir-sync\n.*?)```", file.read(), re.DOTALL)
        (documented,) = yaml.safe_load(blocks[0])
        for field in ("type", "load_assignment"):
            cluster.pop(field)
            documented.pop(field, None)
        self.assertEqual(cluster, documented)


if __name__ == "__main__":
    unittest.main()
