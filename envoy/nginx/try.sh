#!/bin/bash
# Builds nginx with ngx_wasm_module and wasmtime, runs this folder's configuration in it, and looks at what it answers:
# `make try-nginx`. It needs git, a C compiler, Python with pip, cargo and a network; the build stays in target/nginx.
set -euo pipefail
cd "$(dirname "$0")/../.."

NGINX_GIT=${NGINX_GIT:-https://github.com/nginx/nginx}
NGINX_TAG=release-1.22.1
MODULE_GIT=${MODULE_GIT:-https://github.com/Kong/ngx_wasm_module}
# The last commit that takes this wasmtime, which is the newest that has both a wheel, whose library this links, and a
# crate, which has the headers.
MODULE_COMMIT=cad840a55769ea79ac413cd34cc79fe05939e9d8
WASMTIME=25.0.0

root=$PWD
dir=$root/target/nginx
nginx=$dir/nginx/objs/nginx
started=()

stop() {
    for pid in "${started[@]}"; do
        kill "$pid" 2>/dev/null && wait "$pid" || true
    done
}
trap stop EXIT

build() {
    rm -rf "$dir"
    mkdir -p "$dir/headers/src" "$dir/lib"
    cd "$dir"
    git -c advice.detachedHead=false clone -q --depth 1 --branch "$NGINX_TAG" "$NGINX_GIT" nginx
    git clone -q "$MODULE_GIT" module
    git -C module checkout -q "$MODULE_COMMIT"
    python3 -m pip download -q --no-deps --dest wheel "wasmtime==$WASMTIME"
    python3 -m zipfile -e wheel/*.whl library
    ln -s "$(find "$dir/library" -name _libwasmtime.so)" lib/libwasmtime.so
    cat > headers/Cargo.toml << EOF
[package]
name = "headers"
version = "0.0.0"
[dependencies]
wasmtime-c-api-impl = "=$WASMTIME"
[workspace]
EOF
    touch headers/src/lib.rs
    (cd headers && cargo vendor -q vendor > vendor.log)
    local include=$dir/headers/vendor/wasmtime-c-api-impl/include
    sed 's/#cmakedefine/#define/' "$include/wasmtime/conf.h.in" > "$include/wasmtime/conf.h"
    export NGX_WASM_RUNTIME=wasmtime NGX_WASM_RUNTIME_INC=$include NGX_WASM_RUNTIME_LIB=$dir/lib
    cd nginx
    auto/configure --add-module="$dir/module" --with-http_realip_module --without-http_rewrite_module \
        --without-http_gzip_module --without-http_fastcgi_module --without-http_scgi_module \
        --without-http_uwsgi_module --http-client-body-temp-path="$dir/body" --http-proxy-temp-path="$dir/proxy" \
        > ../configure.log 2>&1
    make -j"$(nproc)" > ../make.log 2>&1
    cd "$root"
}

# Waits until this URL answers.
wait_for() {
    for _ in $(seq 100); do
        curl -s -o "$dir/answer" "$1" && return
        sleep 0.1
    done
    echo "try.sh: $1 does not answer: see the logs in $dir" >&2
    exit 1
}

if [ ! -x "$nginx" ]; then
    echo "building nginx and ngx_wasm_module (a minute or two; logs in $dir)"
    build
fi
# What a client at $1 is answered, asking $2 times, with the other arguments for curl.
asked() {
    local client=$1 count=$2
    shift 2
    for _ in $(seq "$count"); do
        curl -s -o "$dir/answer" -w '%{http_code}\n' --interface "$client" "$@"
    done | sort | uniq -c | tr -s ' ' | paste -sd ';'
}

fail() {
    echo "try.sh: $1: see $dir/nginx.log" >&2
    exit 1
}

expect() {
    echo "$1: $3"
    [ "$2" = "$3" ] || fail "$1: expected$2, found$3"
}

workers() {
    ps -o pid= --ppid "$master" | sort
}

python3 -B envoy/lab/upstream.py 10080 > "$dir/upstream.log" 2>&1 &
started+=($!)
target/release/weir-sync > "$dir/weir-sync.log" 2>&1 &
started+=($!)
wait_for http://127.0.0.1:10080/
wait_for http://127.0.0.1:7878/healthz
# As it is shipped, but for two workers on any machine, and a strict rule.
sed -e 's/worker_processes auto/worker_processes 2/' -e 's|"rate": "5/m"}|"rate": "5/m", "strict": true}|' envoy/nginx/nginx.conf \
    > "$dir/nginx.conf"
grep -q '"strict": true' "$dir/nginx.conf" || fail "envoy/nginx/nginx.conf has no rule of 5/m any more"
"$nginx" -p "$root" -c "$dir/nginx.conf" > "$dir/nginx.log" 2>&1 &
master=$!
started+=("$master")
wait_for http://127.0.0.1:10000/

page=http://127.0.0.1:10000
expect "two workers share one bucket" " 100 200; 100 429" "$(asked 127.0.0.2 200 $page/)"
curl -s -D "$dir/refused" -o "$dir/answer" --interface 127.0.0.2 $page/
for header in 'retry-after: [1-9]' 'ratelimit: "per-address";r=0;t=' 'ratelimit-policy: "per-address";q=100;w=600'; do
    grep -qi "^$header" "$dir/refused" || fail "a refusal without $header"
done
expect "a strict rule draws its tokens from weir-sync" " 5 200; 3 429" "$(asked 127.0.0.3 8 -X POST $page/login)"
for _ in $(seq 100); do
    charged=$(curl -s http://127.0.0.1:7878/metrics | sed -n 's/^weir_sync_tokens_charged_total{.*} //p')
    [ "${charged%.*}" -ge 100 ] && break
    sleep 0.1
done
[ "${charged%.*}" -ge 100 ] || fail "weir-sync was told of $charged tokens, expected those of the first client"
echo "weir-sync was told of $charged tokens"

before=$(workers)
kill -HUP "$master"
for _ in $(seq 100); do
    [ -z "$(comm -12 <(echo "$before") <(workers))" ] && break
    sleep 0.1
done
[ -z "$(comm -12 <(echo "$before") <(workers))" ] || fail "a reload left old workers"
expect "after a reload" " 100 200; 20 429" "$(asked 127.0.0.4 120 $page/)"

if grep -E 'emerg|exited on signal|panicked' "$dir/nginx.log"; then exit 1; fi
echo "nginx with Weir does what its page says"
