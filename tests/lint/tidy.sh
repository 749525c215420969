#!/usr/bin/env bash
# clang-tidy over every source of the library and the command. $1: folder of compile_commands.json.
set -euo pipefail
cd "${GPUSNAP_SOURCE:?source tree}"
command -v clang-tidy >/dev/null || {
	echo "clang-tidy is missing: skipped"
	exit 77
}
# What this build does not compile (a device module whose vendor is not here) cannot be parsed.
find formats kernels snapshot loader dispatch tools -name '*.c' -print0 |
	while IFS= read -r -d '' file; do
		! grep -qF "/$file\"" "$1/compile_commands.json" || printf '%s\0' "$file"
	done |
	xargs -0 -n 4 -P 2 clang-tidy --quiet -p "$1" 2> >(grep -v 'warnings generated' >&2)
