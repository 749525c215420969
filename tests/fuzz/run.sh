#!/usr/bin/env bash
# Search for inputs that a fuzz target fails on: libFuzzer, with the address and undefined-behaviour
# sanitizers. Usage: tests/fuzz/run.sh SECONDS [TARGET...]
#
# Each target (all of them when none is named: agent, json, ...) runs for SECONDS, as many at a time
# as there are cores. Failing inputs are kept in build/fuzz/tests/fuzz/fuzz_TARGET.failures.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tools/packages.sh
. tools/packages.sh

case "${1:-}" in
'' | *[!0-9]*)
	sed -n '2,6s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
export GPUSNAP_FUZZ_SECONDS=$1
shift
wanted=$(IFS='|' && echo "$*")
install_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "${FUZZ_PACKAGES[@]}"
configure_and_build fuzz fuzz_targets
rm -f build/fuzz/tests/fuzz/*.figures
echo "== fuzz: $GPUSNAP_FUZZ_SECONDS s a target"
failed=0
summary=$(ctest --test-dir build/fuzz -L fuzz ${wanted:+-R "^fuzz\.($wanted)\$"} \
	--timeout $((GPUSNAP_FUZZ_SECONDS + 600)) --output-on-failure --parallel "$(nproc)") || failed=1
cat build/fuzz/tests/fuzz/*.figures
printf '%s\n' "$summary"
exit $failed
