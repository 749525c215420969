#!/usr/bin/env bash
# Where there is no GPU the CUDA module loads all the same, and every command says what is missing.
# shellcheck source=tests/cli/lib.sh
. "$GPUSNAP_SOURCE/tests/cli/lib.sh"
[ ! -e /dev/nvidiactl ] || {
	echo "this machine has an NVIDIA driver: skipped"
	exit 77
}
expect 0 doctor "$scratch" --json
check '[r0["verdict"] for r0 in r["checks"] if r0["check"] == "cuda:0"] == ["absent"]'
contains "$out" "no NVIDIA driver"
expect 5 serve "$checkpoints/mixtral" --device cuda:0
contains "$err" "device 'cuda:0': no NVIDIA driver"
