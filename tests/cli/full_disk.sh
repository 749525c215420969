#!/usr/bin/env bash
# A full disk and a read-only directory: one clear error, nothing left behind, state untouched.
# Needs root, for a small tmpfs.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"
mkdir "$scratch/small"
mount -t tmpfs -o size=1m none "$scratch/small" 2>/dev/null || {
	echo "cannot mount a tmpfs: skipped"
	exit 77
}
mount_point=$scratch/small

start_server "$checkpoints/mixtral"
expect 0 validate --record
expect 3 save "$scratch/small/state.gsnap"
contains "$err" "No space left"
[ -z "$(ls -A "$scratch/small")" ] || fail "left behind: $(ls -A "$scratch/small")"
mount -o remount,ro "$scratch/small"
expect 3 save "$scratch/small/state.gsnap"
contains "$err" "Read-only"
expect 0 validate
expect 0 save "$scratch/state.gsnap"
stop_server
