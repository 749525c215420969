#!/usr/bin/env bash
# Where there is no AMD GPU the HIP module loads all the same, with the ROCm runtime and without it,
# and every command says what is missing.
# shellcheck source=tests/cli/lib.sh
. "$GPUSNAP_SOURCE/tests/cli/lib.sh"
[ ! -e /dev/kfd ] || {
	echo "this machine has an AMD driver: skipped"
	exit 77
}
says='[r0["finding"] for r0 in r["checks"] if r0["check"] == "hip:0" and r0["verdict"] == "absent"]'

expect 0 doctor "$scratch" --json
check "len($says) == 1"
if grep -q 'finds no AMD GPU' "$out"; then
	contains "$out" "/dev/kfd"
	contains "$out" "hipErrorNoDevice"
fi
expect 5 serve "$checkpoints/mixtral" --device hip:0
contains "$err" "device 'hip:0': "

# Files that are no libraries stand in front of the runtime, as if it were not installed.
mkdir "$scratch/none"
for version in 5 6 7; do
	echo "not a library" >"$scratch/none/libamdhip64.so.$version"
done
export LD_LIBRARY_PATH=$scratch/none
expect 0 doctor "$scratch" --json
check "len($says) == 1"
contains "$out" "the ROCm runtime is not installed"
expect 5 serve "$checkpoints/mixtral" --device hip:0
contains "$err" "device 'hip:0': no libamdhip64.so.5, .6 or .7"
