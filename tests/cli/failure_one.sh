#!/usr/bin/env bash
# The mask that nobody saved: unregistered masks under a policy that forgets them come back as
# zeros and are named; with the default policy they are saved without anybody naming them.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"
model=$checkpoints/qwen3_moe_fp8

start_server "$model" --ep-size 4 --ep-rank 1 --unregistered-masks --forget-unclaimed
expect 0 validate --record
expect 0 save "$scratch/forgetful.gsnap"
expect 0 offload
expect 0 restore "$scratch/forgetful.gsnap"
expect 0 verify # every byte that somebody asked to keep is right: checking weights finds nothing
expect 1 validate --json
check 'not r["proved"]'
check '[f["buffer"] for f in r["failures"]] == ["model.layers.0.mlp.expert_mask", "model.layers.1.mlp.expert_mask"]'
contains "$(query 'r["failures"][0]["detail"]')" "zero"
stop_server

start_server "$model" --ep-size 4 --ep-rank 1 --unregistered-masks
expect 0 validate --record --json
digest=$(query 'r["digest"]')
expect 0 show --json
check 'not any("mask" in b["name"] for b in r["buffers"]) and r["unclaimed_bytes"] > 0'
expect 0 save "$scratch/default.gsnap"
expect 0 offload
expect 0 restore "$scratch/default.gsnap"
expect 0 validate --json
check "r['proved'] and r['digest'] == '$digest'"
kill -9 "$server_pid"
server_pid=
start_server --from "$scratch/default.gsnap"
expect 0 validate --json
check "r['proved'] and r['digest'] == '$digest'"
stop_server
