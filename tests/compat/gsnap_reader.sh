#!/usr/bin/env bash
# The independent reader takes every good golden file and refuses every bad one with the kind of
# fault in its name. Without the Python module xxhash it cannot see damage that only digests show.
set -euo pipefail
cd "${GPUSNAP_SOURCE:?source tree}"
command -v python3 >/dev/null || exit 77
reader=(python3 tests/compat/gsnap_reader.py --quiet)
declare -A kinds=([corrupt]=corrupt [format]=malformed [unsupported]=unsupported [limit]=limit
	[io]=missing [mismatch]=mismatch)
digests=yes
python3 -c 'import xxhash' 2>/dev/null || digests=no

"${reader[@]}" formats/golden/good/*.gsnap
rc=0
said=$("${reader[@]}" formats/golden/bad/*.gsnap 2>&1) || rc=$?
[ "$rc" -eq 1 ] || {
	echo "exit status $rc for bad files, expected 1"
	exit 1
}
for file in formats/golden/bad/*.gsnap; do
	name=${file##*/}
	kind=${kinds[${name%%__*}]}
	[ "$kind-$digests" = corrupt-no ] && continue
	grep -q "/$name: $kind: " <<<"$said" || {
		echo "$name: expected '$kind', got: $(grep "/$name: " <<<"$said")"
		exit 1
	}
done
