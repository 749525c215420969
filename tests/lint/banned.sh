#!/usr/bin/env bash
# Calls that the project does without, and what a library must not do: print, exit, read the
# environment, allocate outside formats/base/alloc.c.
set -euo pipefail
cd "${GPUSNAP_SOURCE:?source tree}"
libraries=(formats kernels snapshot loader dispatch)
failed=0

# refuse PATTERN WHY PATH...
refuse()
{
	local pattern=$1 why=$2 hits
	shift 2
	hits=$(grep -REn --include='*.c' --include='*.h' "(^|[^a-zA-Z0-9_>.])($pattern)[[:space:]]*\(" "$@" |
		grep -vE '^[^:]*:[0-9]+:[[:space:]]*(/?\*|//)' || true)
	[ -z "$hits" ] || {
		echo "$why:"
		echo "$hits"
		failed=1
	}
}

refuse 'strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|rand|srand|tmpnam|mktemp|system|alloca' \
	'banned everywhere' "${libraries[@]}" tools
refuse 'malloc|calloc|realloc|free|strdup|strndup|asprintf' 'heap memory only through formats/base/alloc.h' \
	kernels snapshot loader dispatch
refuse 'printf|puts|putchar|perror|fprintf|vprintf' 'a library never prints' "${libraries[@]}"
refuse 'exit|_exit|abort|quick_exit' 'a library never ends the process' "${libraries[@]}"
refuse 'getenv|secure_getenv|setenv|putenv' 'a library never reads the environment' "${libraries[@]}"
exit $failed
