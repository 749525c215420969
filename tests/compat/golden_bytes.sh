#!/usr/bin/env bash
# Golden files come out of make_golden byte for byte, on every machine. $1: make_golden.
set -euo pipefail
folder=$(mktemp -d "${TMPDIR:-/tmp}/gpusnap-golden-XXXXXX")
trap 'rm -rf "$folder"' EXIT
"$1" "$folder"
diff -r "$folder" "$GPUSNAP_SOURCE/formats/golden"
