#!/usr/bin/env bash
# Where the kernel or a container refuses io_uring, and Linux AIO too, the next engine serves and -v
# says why. $1: the launcher that sets the filter.
# shellcheck source=tests/cli/lib.sh
. "$GPUSNAP_SOURCE/tests/cli/lib.sh"
refuse=$1

"$refuse" uring EPERM true || exit $?
examine "$scratch"
[ "$direct" = True ] || {
	echo "no direct I/O in $scratch: skipped"
	exit 77
}
for error in EPERM:"Operation not permitted" ENOSYS:"Function not implemented"; do
	reason=${error#*:}
	under=("$refuse" uring "${error%%:*}")
	every_job "$scratch" "engine aio, O_DIRECT" --direct=on
	expect 0 doctor "$scratch"
	contains "$out" "aio, O_DIRECT: io_uring is not available: $reason; "
	expect 4 load --io=uring --direct=on "$checkpoints/mixtral" "$scratch/no.gsnap"
	contains "$err" "io_uring is not available: $reason"

	under=("$refuse" "uring,aio" "${error%%:*}")
	every_job "$scratch" "engine threads, O_DIRECT" --direct=on
	expect 0 doctor "$scratch"
	contains "$out" "threads, O_DIRECT: io_uring is not available: $reason, and Linux AIO is not available: $reason; "
	expect 4 load --io=aio "$checkpoints/mixtral" "$scratch/no.gsnap"
	contains "$err" "Linux AIO is not available: $reason"
done
[ ! -e "$scratch/no.gsnap" ] || fail "left behind: no.gsnap"
