#!/usr/bin/env bash
# What --plan says is what a load then does, and it loads nothing.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"

# The parts of a plan add up, the views of a buffer fill it.
consistent='all(k in r for k in ("directory", "files", "model_type", "note", "tensors", "unexpected")) \
	and r["tp"] == [1, 2] and r["ep"] == [0, 1] \
	and r["views"]["count"] == sum(b["views"] for b in r["buffers"]) \
	and r["views"]["count"] == sum(r["views"][k] for k in ("whole", "oversized", "strided")) \
	and r["bytes"]["copied"] == sum(b["bytes"] for b in r["buffers"]) \
	and r["copies"]["after"] == len(r["copy_list"]) \
	and r["runs"] == sum(len(c["runs"]) for c in r["copy_list"]) \
	and r["bytes"]["read"] == sum(n["bytes"] for c in r["copy_list"] for n in c["runs"]) \
	and all(sum(v["bytes"] for v in b["view_list"]) == b["bytes"] for b in r["buffers"]) \
	and r["views"]["compacted"] == sum(v.get("compacted", False) for b in r["buffers"] for v in b["view_list"])'
for compact in auto always never; do
	for model in qwen3_moe_fp8 mixtral; do
		options=(--tp-size 2 --tp-rank 1 --compact "$compact")
		expect 0 load "$checkpoints/$model" --plan "${options[@]}" --json -v
		plan=$out
		check "$consistent and r['compact'] == '$compact'"
		expect 0 load "$checkpoints/$model" "$scratch/$model.gsnap" --replace "${options[@]}" \
			--direct off --json
		out=$(python3 -c 'import json, sys
plan, load = map(json.loads, sys.argv[1:])
pairs = [(plan["views"]["count"], load["views"]), (plan["views"]["compacted"], load["compacted"]),
         (plan["runs"], load["runs"]), (plan["copies"]["after"], load["copies"]),
         (plan["bytes"]["copied"], load["bytes"]), (plan["bytes"]["needed"], load["bytes_needed"]),
         (plan["bytes"]["read"], load["bytes_read"])]
print(json.dumps({"schema": 1, "pairs": pairs}))' "$plan" "$out")
		check 'all(a == b for a, b in r["pairs"])'
	done
done
expect 0 load "$checkpoints/mixtral" --plan --compact never --json
check 'r["copies"]["before"] == r["copies"]["after"] > r["views"]["count"] and "copy_list" not in r'
expect 0 load "$checkpoints/mixtral" --plan
contains "$out" " views: "
contains "$out" "experts.w13_weight"
expect 2 load "$checkpoints/mixtral" "$scratch/none.gsnap" --plan
[ ! -e "$scratch/none.gsnap" ] || fail "--plan wrote a file"
expect 3 load "$scratch/none" --plan --json
check 'r["error"]["status"] == "E_IO"'

# A snapshot in the place of a checkpoint: taken as it was saved, and only as that rank.
expect 0 load "$scratch/mixtral.gsnap" "$scratch/again.gsnap" --json
check '"snapshot: taken as it was saved" in r["note"]'
expect 0 diff "$scratch/mixtral.gsnap" "$scratch/again.gsnap"
expect 2 load "$scratch/mixtral.gsnap" "$scratch/other.gsnap" --tp-size 2 --tp-rank 0
contains "$err" "is a snapshot of rank tp 1/2"
expect 2 load "$scratch/mixtral.gsnap" --plan
contains "$err" "is a snapshot, not a checkpoint"

# A socket that nobody may listen at is refused before the load, whatever that would say.
mkdir -m 0755 "$scratch/open"
expect 3 serve "$scratch/no checkpoint" --socket "$scratch/open/s.sock"
contains "$err" "must be a directory of user"
