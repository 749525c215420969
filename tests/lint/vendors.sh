#!/usr/bin/env bash
# What differs between CUDA and HIP, with line counts, and that nothing else does: a vendor's names
# stand only in these files. Prints the list.
set -euo pipefail
cd "${GPUSNAP_SOURCE:?source tree}/kernels"
vendor=(vendor_cuda.h vendor_cuda_device.h cuda.cmake
	vendor_hip.h vendor_hip_device.h hip_entries.h hip_entries.c hip.cmake)
shared=(vendor.h vendor_device.h gpu_*.c gpu_*.h gpu_*.cu ./*.kernel.h)
failed=0

# Code alone: comments may speak of a vendor.
strangers=$(for file in "${shared[@]}"; do
	case $file in vendor*.h) continue ;; esac
	sed -e 's|//.*||' -e 's|/\*.*\*/||' -e '/\/\*/,/\*\//d' "$file" |
		grep -nE '\b(cuda|hip|cu)[A-Z_]|__CUDA|__HIP|GSN_VENDOR' | sed "s|^|$file: |" || true
done)
[ -z "$strangers" ] || {
	echo "a vendor's names outside its header:"
	echo "$strangers"
	failed=1
}
echo "one vendor only:"
wc -l "${vendor[@]}"
echo "both:"
wc -l "${shared[@]}"
exit $failed
