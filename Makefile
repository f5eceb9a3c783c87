# One target per step. `make` alone lists those for every day.

export PATH := $(PATH):$(HOME)/.cargo/bin
export CARGO_TARGET_DIR ?= $(CURDIR)/target

# Where the tests find what they start.
export WEIR_WASM := $(CARGO_TARGET_DIR)/weir_filter.wasm
export WEIR_EMPTY_WASM := $(CARGO_TARGET_DIR)/weir_empty_filter.wasm
export WEIR_NATIVE := $(CARGO_TARGET_DIR)/module/libweir_native.so
# `make bench-gateway` compares the gateway with it, and says how to build it.
export WEIR_LIMITADOR ?= $(HOME)/.cache/weir-bench/limitador-server
export WEIR_ENVOY := $(CURDIR)/.tools/envoy/envoy/_bin/envoy

# The hash of a filter does not depend on this machine's paths.
CARGO_HOME ?= $(HOME)/.cargo
export CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS := --remap-path-prefix=$(CARGO_HOME)=/cargo --remap-path-prefix=$(CURDIR)=/weir

# Property tests try the same cases each time, so that a change fails by what it changed. Another number, other cases.
export PROPTEST_RNG_SEED ?= 1
# Tests that start real programs mostly wait: more of them than there are processors run at once.
export RUST_TEST_THREADS ?= 8

LAB := python3 -B envoy/lab
KUBERNETES := $(CURDIR)/.tools/kubernetes
# What runs natively: everything but the wasm. Every step names the same packages, even if it needs only some of them,
# because cargo would build the dependencies again for a different selection.
NATIVE := --locked --workspace --exclude weir-filter --exclude weir-empty-filter
# In `make test`, which sets TOGETHER, lints and tests are one build: clippy-driver compiles as rustc does, and lints.
LINTING := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
NATIVE_CARGO := $(if $(TOGETHER),$(LINTING) )cargo
# What only computes leaves the processors to the tests that start programs, which mostly wait.
LATER := $(if $(TOGETHER),nice -n 5 env )
FILTER := --locked -p weir-filter --target wasm32-wasip1
# As it is shipped, by itself: with weir-sync beside it, the core would have what only weir-sync needs.
MODULE := --locked -p weir-native
EMPTY_FILTER := --locked -p weir-empty-filter --target wasm32-wasip1
# For people who work on the code: it includes private items, and links may point to them.
DOC := RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --no-deps --document-private-items
# What only computes: without the programs that other tests start, and so quickly built.
COMPUTE := $(LATER)cargo run -q --locked --release -p weir-tests --no-default-features --bin
suite = $(NATIVE_CARGO) test $(NATIVE) $(addprefix --test ,$(1))
# A program that measures weir-sync and the filter as operators run them.
measure = WEIR_SYNC_BIN="$(CARGO_TARGET_DIR)/release/weir-sync" cargo run -q --locked --release -p weir-tests --bin $(1)

ifndef TOGETHER
.NOTPARALLEL:
endif
# What targets need, from the machine and in .tools/.
PROGRAMS := python3 cargo cc wasm-opt redis-server curl openssl node valgrind chromedriver
TOOLS := envoy envoys prometheus urllib3 prometheus-client valkey wasm-bindgen cargo-deny
.PHONY: $(PROGRAMS) $(TOOLS) help run run-regions visitors attack test together quick weekly tools wasm module \
	sync sync-debug empty-filter proto dashboard fmt locks deny advisories clippy clippy-filters linted doc \
	doc-libraries native started computed unit model stores stores-valkey e2e e2e-envoys e2e-module vectors lab \
	kubernetes sim plots screenshots regions bench bench-envoy bench-quick bench-native bench-sync bench-gateway \
	instructions instructions-baseline fuzz conformance dist dist-sync dist-module try-dist dist-twice clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9 -]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

# Before it builds anything, each target names the first program that it lacks, and only programs that it needs.
PACKAGE_cargo := Rust with rustup (https://rustup.rs)
PACKAGE_cc := a C compiler (of Debian's packages: gcc and libc6-dev)
PACKAGE_wasm-opt := binaryen
PACKAGE_node := Node (of Debian's packages: nodejs)
PACKAGE_chromedriver := Chromium with its driver (of Debian's packages: chromium-driver)
$(PROGRAMS):
	@command -v $@ >/dev/null || { \
	  echo "weir: $@ is missing: install $(or $(PACKAGE_$@),it (of Debian's packages: $@)), then try again." >&2; exit 1; }
$(TOOLS): python3
	@$(LAB) tools $@

run: deployment := single
run-regions: deployment := regions
run run-regions: python3 ## run one edge at 127.0.0.1:10000, or three regions at 10001 to 10003
	@$(LAB) ports $(deployment)
	@$(LAB) tools rust packages wasm-opt envoy $(if $(filter regions,$(deployment)),redis)
	@$(MAKE) --no-print-directory wasm sync-debug
	@exec $(LAB) --end-with-parent run $(deployment)
visitors attack: python3 ## ask those regions as visitors, or as an attacker (docs/operating.md)
	@exec $(LAB) --end-with-parent traffic $@

# Three steps at once; each prints its output when it ends. After the first that fails no more begin.
test: python3 ## check everything, as .ci/run does
	@$(LAB) tools rust packages
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target TOGETHER=yes together
	@echo "make test: every step passed"

together: fmt locks tools started deny instructions clippy-filters doc-libraries computed sim kubernetes lab
ifdef TOGETHER
# Tools are installed while the tests are built.
wasm-opt redis-server valgrind chromedriver $(TOOLS) kubernetes: | tools
# Builds in one folder would wait for one another. Both of the last have Envoys to themselves.
started doc-libraries computed: | linted
started: | wasm module
lab: | started
endif
quick: prometheus fmt clippy ## check what a small change breaks most often (before each commit)
	$(call suite,architecture documentation mixin rules schema)

weekly: ## check what takes too long for every change, or needs a network
	@.ci/weekly

tools: python3 ## install what is missing (.tools/; wasm-opt, redis-server, valgrind and Chromium by apt)
	@$(LAB) tools rust packages wasm-opt envoy redis prometheus-client urllib3 prometheus valgrind chromium cargo-deny

fmt: cargo
	cargo fmt --all --check

# The Cargo.lock of tests/conformance, a workspace of its own that depends on crates of this one.
locks: python3 cargo
	@$(LAB) locks

# Licences, sources and known faults (RustSec's database, on the network) of the crates that are used: deny.toml.
deny advisories: export PATH := $(CURDIR)/.tools/cargo-deny/bin:$(PATH)
deny: cargo cargo-deny
	cargo deny --locked check --hide-inclusion-graph licenses bans sources
advisories: cargo cargo-deny
	cargo deny --locked check --hide-inclusion-graph advisories

clippy: cargo cc clippy-filters ## lint all code
	cargo clippy $(NATIVE) --all-targets -- -D warnings
# The same lints natively, and all that the tests are.
linted: cargo cc
	$(NATIVE_CARGO) test $(NATIVE) --no-run --tests --bench native
clippy-filters: cargo cc
	$(foreach of,FILTER EMPTY_FILTER,cargo clippy $($(of)) -- -D warnings && )true

doc: cargo cc ## build the documentation of the code
	$(foreach of,NATIVE FILTER EMPTY_FILTER,$(DOC) $($(of)) && )true
# All of it checks each dependency of weir-sync once more, and so is part of .ci/weekly.
doc-libraries: cargo cc
	$(LATER)$(DOC) --locked $(addprefix -p weir-,protocol rules limiter budget store cli gateway)

wasm: python3 cargo cc wasm-opt ## build the filter; fail if it is too large
	cargo rustc $(FILTER) --profile wasm -- -Clink-arg=-zstack-size=983040
	@$(LAB) wasm weir_filter

module: export RUSTFLAGS := $(CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS)
module: cargo cc ## build the filter as a dynamic module of Envoy
	cargo build $(MODULE) --profile module

# A filter that does nothing, which the benchmark compares Weir's with.
empty-filter: python3 cargo cc wasm-opt
	cargo build $(EMPTY_FILTER) --profile wasm
	@$(LAB) wasm weir_empty_filter
sync: cargo cc ## build weir-sync
	cargo build --locked --release -p weir-sync
# What `make run` starts: built in a fraction of the time, and quick enough to look at.
sync-debug: cargo cc
	cargo build --locked -p weir-sync

# Both are checked in, and compared by tests: the gRPC code of the protos, and what Grafana reads of weir.yaml.
proto: cargo cc
	WEIR_WRITE_PROTO=1 cargo test $(NATIVE) --test rls protos::
dashboard: cargo cc
	WEIR_WRITE_DASHBOARD=1 cargo test $(NATIVE) --test mixin the_dashboard_is_current

# The tests by their names, and those of them that start programs.
TESTED = $(foreach folder,tests tests/fuzz sync-service $(wildcard sync-service/* filter/*),$(folder)/tests)
FOUND = $(wildcard $(addsuffix /*.rs,$(TESTED))) $(patsubst %/main.rs,%,$(wildcard $(addsuffix /*/main.rs,$(TESTED))))
STARTING := binary e2e http mixin rls stores
native: started computed ## run every native test
started: cargo cc redis-server curl openssl chromedriver envoy prometheus urllib3 prometheus-client wasm module
	$(call suite,$(STARTING))
computed: cargo cc wasm
	$(LATER)$(NATIVE_CARGO) test $(NATIVE) --lib \
	  $(addprefix --test ,$(filter-out $(STARTING),$(sort $(basename $(notdir $(FOUND))))))
	$(LATER)$(NATIVE_CARGO) test $(NATIVE) --doc
unit: cargo cc ## run the unit and property tests beside the code
	cargo test $(NATIVE) --lib

# Threads that share a slot of the table, in every order that they may run in; LOOM_MAX_PREEMPTIONS=3 tries more. The
# flag reaches every package, so all are built again, in a folder of their own.
model: export CARGO_TARGET_DIR := $(CARGO_TARGET_DIR)/model
model: export CARGO_PROFILE_RELEASE_LTO := off
model: export RUSTFLAGS := --cfg loom
model: cargo cc
	cargo test --locked --release -p weir-limiter --features own_memory --lib $(addprefix \
	  --config profile.release.package.weir-limiter.,opt-level=0 codegen-units=16) -- table::shared::tests::model
stores: cargo cc redis-server python3 ## run the store suite (in memory and in a real Redis)
	$(call suite,stores)
# The package's Valkey has no TLS, and a node that forgets another makes others forget it, so one test cannot be set up.
stores-valkey: export WEIR_REDIS := $(CURDIR)/.tools/valkey/valkey-server
stores-valkey: cargo cc redis-server valkey python3
	$(call suite,stores) -- --skip tls --skip certificate --skip replaced_unawares

# weir-sync is built as its own tests want it: `--bins` would build it once more, for other features of its packages.
e2e: cargo cc redis-server envoy urllib3 wasm module ## run the end-to-end tests in real Envoys
	$(call suite,e2e binary) --no-run
	$(call suite,e2e)
# A part of them in the other releases of Envoy, and all with the dynamic module (envoy/lab/trials.py).
e2e-envoys: cargo cc redis-server envoys urllib3 wasm
	$(call suite,e2e binary) --no-run
	@exec $(LAB) releases smoke $(call suite,e2e)
e2e-module: export WEIR_HOST := native
e2e-module: envoys e2e
	@exec $(LAB) releases module $(call suite,e2e)
vectors: cargo cc node wasm-bindgen
	CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER="$(CURDIR)/.tools/wasm-bindgen/bin/wasm-bindgen-test-runner" \
	cargo test --locked -p weir-limiter --target wasm32-unknown-unknown --test vectors

# Uses what is built already; if something is missing, it says which target builds it.
lab: python3 prometheus ## try `make run` and `make run-regions`, on other ports
	cd envoy/lab && python3 -B -m unittest
	cd envoy/dist && python3 -B -m unittest
kubernetes: python3 ## check the chart in envoy/kubernetes against Kubernetes's schemas
	@$(LAB) tools kubernetes
	cd envoy/kubernetes && PYTHONPATH="$(KUBERNETES)" python3 -B -m unittest
# ALL=1 runs the whole table with six seeds, WORKERS=8 at POPs of eight workers, SEEDS=100000 fresh random worlds.
sim: cargo cc ## simulate the budget loop (SCENARIO=hopping for a part, SEED=7 for one world)
	@SEED='$(SEED)' SEEDS='$(SEEDS)' SCENARIO='$(SCENARIO)' ALL='$(ALL)' WORKERS='$(WORKERS)' $(COMPUTE) sim
plots: cargo cc ## draw docs/plots
	$(COMPUTE) plots
screenshots: cargo cc redis-server chromedriver envoy wasm sync
	$(call measure,screenshots)
regions: cargo cc redis-server envoy wasm sync ## measure three real regions under load and faults (8 minutes)
	$(call measure,regions)

# Nothing else should run on the machine. With QUICK=1 all but the second only print, and take a minute or five;
# ONLY='decide/allowed' has bench-native print a part.
FIGURES := docs/reference/benchmarks.md
QUICKLY = $(if $(QUICK),--quick,--write $(FIGURES))
bench: bench-envoy bench-native bench-sync bench-gateway ## measure all of docs/reference/benchmarks.md (40 minutes)
bench-envoy: cargo cc redis-server envoy wasm module empty-filter sync
	$(call measure,bench) -- envoy $(QUICKLY)
bench-native: cargo cc
	cargo bench --locked -p weir-tests --bench native -- '$(ONLY)'
	$(if $(ONLY),,$(call measure,bench) -- native --write $(FIGURES) "$(CARGO_TARGET_DIR)/criterion")
bench-gateway: envoy
bench-sync bench-gateway: cargo cc redis-server sync
	$(call measure,bench) -- $(@:bench-%=%) $(QUICKLY)
bench-quick: python3 ## print the main ratios of bench-envoy (5 minutes)
	@$(LAB) tools rust packages wasm-opt envoy redis
	@$(MAKE) --no-print-directory bench-envoy QUICK=1
instructions: cargo cc valgrind ## count the instructions of each case; fail if one rose by more than 5 %
	@$(COMPUTE) instructions
instructions-baseline: cargo cc valgrind
	@$(COMPUTE) instructions -- --write
fuzz: python3 cargo cc ## search for inputs that break the parser or the matcher (FUZZ_SECONDS=60 each)
	@exec $(LAB) fuzz $(or $(FUZZ_SECONDS),60)

# The crate proxy-wasm-host: wasmtime takes minutes to build, and asks for a newer Rust than it needs.
conformance: cargo cc wasm
	CARGO_TARGET_DIR=tests/conformance/target \
	  cargo test --locked --ignore-rust-version --manifest-path tests/conformance/Cargo.toml -- --show-output

# `make dist ARCHITECTURES=x86_64` is sooner done; this machine's must be one of them.
ARCHITECTURES ?= x86_64 aarch64
dist-sync dist-module: dist-%: python3 cargo cc
	@$(LAB) release $* $(ARCHITECTURES)
dist: python3 cargo cc wasm-opt dist-sync dist-module wasm ## make a release in dist/ (docs/install.md)
	@$(LAB) tools certifi kubernetes
	@PYTHONPATH="$(KUBERNETES)" python3 -B envoy/dist --architectures $(ARCHITECTURES) --into "$(CURDIR)/dist"
try-dist: python3 redis-server prometheus envoy ## install each file of dist/ as docs/install.md says, and try it
	@$(LAB) tools skopeo registry kubernetes emulated
	cd tests/install && PYTHONPATH="$(KUBERNETES)" ./clean_root.sh python3 -B -m unittest
dist-twice: python3 cargo cc wasm-opt
	tests/install/twice.sh
clean: ## remove what was built, and the installed tools
	rm -rf target tests/conformance/target .tools dist
