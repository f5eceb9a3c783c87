#!/bin/sh
# Builds the commit's release in another folder, with a target folder of its own, and compares every file with those in dist/.
# Keeps the other folder if they differ. Both must be of one commit, and the copy without changes.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
test -f dist/SHA256SUMS || { echo "weir: dist/SHA256SUMS is missing: make it with \`make dist\`." >&2; exit 1; }
test -z "$(git status --porcelain)" || { echo "weir: this copy has changes: commit them, and \`make dist\` again." >&2; exit 1; }
other=$(mktemp -d "${TMPDIR:-/tmp}/weir-again.XXXXXX")
# Another depth and another name than here.
mkdir -p "$other/another/place"
git archive HEAD | tar -x -C "$other/another/place"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# What is installed is the same.
ln -s "$root/.tools" "$other/another/place/.tools"
env -u CARGO_TARGET_DIR -u MAKEFLAGS -u MAKELEVEL make --no-print-directory -C "$other/another/place" dist
if ! diff dist/SHA256SUMS "$other/another/place/dist/SHA256SUMS"; then
  echo "weir: a release built in another folder has other bytes: compare dist with $other/another/place/dist." >&2
  exit 1
fi
rm -rf "$other"
echo "Built in two folders, every file has the same bytes."
