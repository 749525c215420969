#!/usr/bin/env bash
# kill -9 the server: a fresh process from the snapshot proves; the dead one is in nobody's way.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"

start_server "$checkpoints/mixtral" --ep-size 2 --ep-rank 0
expect 0 validate --record --json
digest=$(query 'r["digest"]')
expect 0 save "$scratch/state.gsnap"
kill -9 "$server_pid"
wait "$server_pid" 2>/dev/null || true
server_pid=
expect 2 show
contains "$err" "no process with an agent"
expect 0 ps --json
check 'r["processes"] == []'
expect 0 verify "$scratch/state.gsnap" --json
check 'r["ok"]'
start_server --from "$scratch/state.gsnap"
expect 0 validate --json
check "r['proved'] and r['digest'] == '$digest'"
expect 0 verify
expect 0 save "$scratch/again.gsnap"
expect 0 diff "$scratch/state.gsnap" "$scratch/again.gsnap" --json
check 'r["same"]'
stop_server
