#!/usr/bin/env bash
# The shared library exports gpusnap_* and nothing else. $1: the library.
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '{print $3}')
strangers=$(grep -v '^gpusnap_' <<<"$exported" || true)
[ -z "$strangers" ] || {
	echo "exported by mistake: $strangers"
	exit 1
}
grep -q '^gpusnap_save$' <<<"$exported" || {
	echo "gpusnap_save is not exported: is this the library?"
	exit 1
}
