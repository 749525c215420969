#!/usr/bin/env bash
# Every C file is as clang-format leaves it; every script passes shellcheck.
set -euo pipefail
cd "${GPUSNAP_SOURCE:?source tree}"
for tool in clang-format shellcheck; do
	command -v $tool >/dev/null || {
		echo "$tool is missing: skipped"
		exit 77
	}
done
find formats kernels snapshot loader dispatch tools tests \( -name '*.[ch]' -o -name '*.cu' \) -print0 |
	xargs -0 clang-format --dry-run -Werror
grep -RlE '^#!/usr/bin/env bash' tools tests .ci | xargs shellcheck -x
