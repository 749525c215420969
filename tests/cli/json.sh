#!/usr/bin/env bash
# The fields that scripts depend on, for every command with --json.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"

has()
{
	local field
	for field in "$@"; do
		check "$field in r"
	done
}

start_server "$checkpoints/qwen3_moe_fp8"
expect 0 validate --record --json
has '"proved"' '"layers"' '"experts_swept"' '"steps"' '"digest"' '"failures"'
check '[c["check"] for c in r["checks"]] == ["structure", "control", "sweep", "decode"]'
check 'all(c["bytes_read"] > 0 and c["seconds"] >= 0 for c in r["checks"])'
expect 0 validate --checks=sweep,structure --json
check '[c["check"] for c in r["checks"]] == ["structure", "sweep"] and r["digest"] is None'
expect 2 validate --checks=everything
expect 0 validate --reference "$checkpoints/qwen3_moe_fp8/reference.safetensors" --json
has '"proved"' '"layers"' '"failures"' '"reference"'
check 'all(set(m) >= {"module", "max_error_over_bound", "ids_equal", "near_ties"} for m in r["reference"])'
expect 0 save "$scratch/a.gsnap" --json
has '"bytes"' '"seconds"' '"engine"' '"direct"' '"root"'
expect 0 save "$scratch/read_back.gsnap" --read-back --json
check 'r["read_back"] and r["read_back_seconds"] >= 0'
expect 0 show --json
has '"regions"' '"buffers"' '"unclaimed_bytes"'
check 'all(set(g) >= {"id", "tag", "policy", "state", "bytes", "resident_bytes"} for g in r["regions"])'
check 'all(set(b) >= {"name", "role", "dtype", "shape", "region", "digest"} for b in r["buffers"])'
expect 0 ps --json
check 'len(r["processes"]) == 1'
expect 0 restore "$scratch/a.gsnap" --json
has '"bytes"' '"seconds"' '"engine"' '"direct"' '"root"'
expect 0 verify --json
has '"ok"' '"root"' '"buffers"' '"bytes"' '"damage"'
expect 0 verify "$scratch/a.gsnap" --json
has '"ok"' '"root"' '"buffers"' '"bytes"' '"damage"'
stop_server
expect 0 load "$checkpoints/qwen3_moe_fp8" "$scratch/b.gsnap" --record --json
has '"views"' '"copies"' '"bytes"' '"bytes_read"' '"seconds"'
check 'r["note"] is None and r["snapshot"]["bytes"] > r["bytes"]'
expect 0 ls "$scratch/b.gsnap" --json
has '"root"' '"parent"' '"uuid"' '"buffers"'
check 'r["parent"] is None'
check 'all(set(b) >= {"name", "dtype", "shape", "digest", "bytes"} for b in r["buffers"])'
expect 0 diff "$scratch/a.gsnap" "$scratch/b.gsnap" --json
has '"same"' '"buffers"'
expect 0 load "$checkpoints/mixtral" "$scratch/c.gsnap" --json
expect 1 diff "$scratch/a.gsnap" "$scratch/c.gsnap" --json
check 'not r["same"] and all(set(b) >= {"name", "leaves_changed", "bytes_changed"} for b in r["buffers"])'
expect 0 doctor "$scratch" --json
check 'any(c["check"] == "host" and c["verdict"] == "ok" for c in r["checks"])'
expect 3 ls "$scratch/none" --json
check 'r["error"]["status"] == "E_IO" and r["error"]["code"] == 3'
