#!/usr/bin/env bash
# kill -9 during a save over an existing file: the old file or the new one verifies, never
# anything else, and the next save needs no clean-up. The library's test does it 200 times.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"
target=$scratch/dir/state.gsnap
mkdir "$scratch/dir"

for round in $(seq 20); do
	start_server "$checkpoints/mixtral"
	[ "$round" -gt 1 ] || expect 0 save "$target"
	"$GPUSNAP" save "$target" --replace >/dev/null 2>&1 &
	save=$!
	sleep "0.00$((RANDOM % 10))$((RANDOM % 10))"
	kill -9 "$server_pid"
	wait "$server_pid" 2>/dev/null || true
	wait $save 2>/dev/null || true
	server_pid=
	expect 0 verify "$target" --json
	check 'r["ok"]'
done
start_server "$checkpoints/mixtral"
expect 0 save "$target" --replace
stop_server
[ "$(ls -A "$scratch/dir")" = state.gsnap ] || fail "litter: $(ls -A "$scratch/dir")"
