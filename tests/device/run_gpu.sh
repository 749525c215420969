#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one and none of our packages.
#
# Usage: tests/device/run_gpu.sh BUILD [PHASE...]
# PHASE: device hip memcheck cli bench peers (default: all)
#
# BUILD holds the programs of the portable preset and libgpusnap-cuda.so in one folder; its lib/, if
# there is one, the shared libraries that the machine lacks (Check). Logs go to $LOGS, ./gpu-logs
# by default. Ends with a table; the exit status says whether everything passed.
set -uo pipefail
source_tree=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:?folder of the build}" && pwd)
shift
[ $# -gt 0 ] || set -- device hip memcheck cli bench peers
logs=${LOGS:-gpu-logs}
device=${GPUSNAP_DEVICE:-cuda:0}
mkdir -p "$logs"
[ ! -d "$build/lib" ] || export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export GPUSNAP=$build/gpusnap GPUSNAP_SOURCE=$source_tree GPUSNAP_DEVICE=$device
export CK_TIMEOUT_MULTIPLIER=20
table=$logs/table.txt
failed=0
: >"$table"

# step NAME COMMAND...: run, log, and note the result; a skip is a failure here.
step()
{
	local name=$1 status=0 began=$SECONDS
	shift
	timeout "${STEP_SECONDS:-300}" "$@" >"$logs/$name.log" 2>&1 || status=$?
	if [ $status -eq 0 ]; then
		printf '%-28s ok      %4d s\n' "$name" $((SECONDS - began)) >>"$table"
		return
	fi
	printf '%-28s FAILED  %4d s  status %d\n' "$name" $((SECONDS - began)) $status >>"$table"
	echo "== $name: status $status"
	tail -n 12 "$logs/$name.log"
	failed=1
}

run_device()
{
	step conformance "$build/test_device_conformance" "$device"
	step kernels_match "$build/test_device_kernels_match" "$device"
	step routes_match "$build/test_device_routes_match" "$device"
	step random_operations "$build/test_device_random_operations" "$device"
	step graph_survives "$build/test_device_graph_survives" "$device"
	step cycles_leak_nothing "$build/test_device_cycles_leak_nothing" "$device"
}

# The same programs beside the HIP module that runs over CUDA, where the build has it.
run_hip()
{
	local name
	[ -d "$build/hip_on_nvidia" ] || return 0
	for name in conformance kernels_match random_operations; do
		step "hip_$name" "$build/hip_on_nvidia/test_device_$name" hip:0
	done
}

# Check forks; the sanitizer follows a process of its own best, so no fork.
run_memcheck()
{
	local tool check
	tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
	for check in memcheck racecheck; do
		CK_FORK=no GPUSNAP_CASES=12 step "$check" "$tool" --tool "$check" --error-exitcode 9 \
			"$build/test_device_kernels_match" "$device"
	done
}

run_cli()
{
	local model name
	for model in mixtral qwen3_moe qwen3_moe_fp8 gpt_oss_mxfp4 deepseek_v4_fp4; do
		step "cycle_$model" "$source_tree/tests/cli/cycle.sh" "$model"
	done
	for name in delta failure_one inject reference kill_server two_devices; do
		step "$name" "$source_tree/tests/cli/$name.sh"
	done
}

run_bench()
{
	step bench "$build/bench_gpu" "$device" "${TMPDIR:-/tmp}"
	step bench_command "$GPUSNAP" bench "${TMPDIR:-/tmp}" --device "$device" --size 4G
	cat "$logs/bench.log" "$logs/bench_command.log" >>"$table"
}

# Other programs on the same machine in the same run: PyTorch's stack, slices copied one by one.
run_peers()
{
	local folder=${TMPDIR:-/tmp}/gpusnap-peers
	mkdir -p "$folder"
	step peers python3 "$source_tree/tests/device/peers.py" "$folder"
	step make_views "$build/make_views" "$folder/views"
	step bench_load "$build/bench_load" "$folder/views" 1 "$device"
	cat "$logs/peers.log" "$logs/bench_load.log" >>"$table"
	rm -rf "$folder"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader >>"$table" 2>&1 || true
step doctor "$GPUSNAP" doctor
for phase in "$@"; do
	case "$phase" in
	device) run_device ;;
	hip) run_hip ;;
	memcheck) run_memcheck ;;
	cli) run_cli ;;
	bench) run_bench ;;
	peers) run_peers ;;
	*)
		echo "no phase is called '$phase'" >&2
		exit 2
		;;
	esac
done
echo
cat "$table"
exit $failed
