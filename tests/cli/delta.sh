#!/usr/bin/env bash
# Deltas on the command line: saved, listed, followed by every command that opens a snapshot,
# flattened; a parent that is missing, moved, damaged or another is said by leaf and file.
# shellcheck source=tests/cli/lib.sh
. "$GPUSNAP_SOURCE/tests/cli/lib.sh"

weight=model.layers.1.mlp.experts.w2_weight
cd "$scratch"
start_server "$checkpoints/qwen3_moe_fp8" --allow-inject
expect 0 validate --record
expect 0 save base.gsnap
expect 0 inject flip "$weight"
expect 0 save one.gsnap --parent base.gsnap --json
check 'r["depth"] == 1 and r["leaves_written"] == 1 < r["leaves"]'
full=$(stat -c %s base.gsnap)
[ "$(stat -c %s one.gsnap)" -lt $((full / 4)) ] || fail "the delta is $(stat -c %s one.gsnap) of $full bytes"
expect 0 inject zero model.layers.0.mlp.expert_mask
expect 0 save two.gsnap --parent one.gsnap
contains "$out" "delta 2 of "
expect 0 save same.gsnap --parent two.gsnap --json
check 'r["leaves_written"] == 0 and r["depth"] == 3'

# What it says of itself.
expect 0 ls two.gsnap
contains "$out" "delta of depth 2"
contains "$out" "one.gsnap"
expect 0 ls base.gsnap --json
root=$(query 'r["root"]')
check 'r["parent"] is None and r["depth"] == 0 and len(r["chain"]) == 1'
expect 0 ls two.gsnap --json
check "r['depth'] == 2 and [c['path'] for c in r['chain']] == ['two.gsnap', 'one.gsnap', 'base.gsnap']"
check "r['chain'][2]['root'] == '$root' and r['chain'][1]['root'] == r['parent']"
expect 0 diff two.gsnap same.gsnap
expect 1 diff base.gsnap two.gsnap --json
check '{b["name"] for b in r["buffers"]} == {"model.layers.0.mlp.expert_mask", "'$weight'"}'

# Every way back.
expect 0 verify two.gsnap
expect 0 restore base.gsnap
expect 0 validate
expect 0 restore one.gsnap
expect 0 verify
expect 1 validate
contains "$out" "layer 1"
expect 0 restore two.gsnap
expect 1 validate
contains "$out" "expert_mask"
expect 0 offload --backing snapshot
expect 0 resume
expect 0 verify
expect 0 extract two.gsnap "$weight" --raw -o delta.raw
expect 0 flatten two.gsnap flat.gsnap
contains "$out" "flattened and verified"
expect 0 diff two.gsnap flat.gsnap
expect 0 extract flat.gsnap "$weight" --raw -o flat.raw
cmp delta.raw flat.raw || fail "extracted bytes differ"
expect 3 flatten two.gsnap flat.gsnap
contains "$err" "exists"

# What must not be.
expect 2 save base.gsnap --parent one.gsnap --replace
contains "$err" "need as their parent"
expect 2 flatten two.gsnap base.gsnap --replace
contains "$err" "need as their parent"
expect 3 save three.gsnap --parent none.gsnap
expect 0 load "$checkpoints/mixtral" other.gsnap
expect 1 save three.gsnap --parent other.gsnap
contains "$err" "does not fit this process"
[ ! -e three.gsnap ] || fail "a delta of what does not fit"

# The greatest depth, and its remedy.
previous=same
for depth in 4 5 6 7 8; do
	expect 0 save "$depth.gsnap" --parent "$previous.gsnap"
	previous=$depth
done
expect 0 verify 8.gsnap
expect 6 save 9.gsnap --parent 8.gsnap
contains "$err" "gpusnap flatten"
expect 0 flatten 8.gsnap 8.gsnap --replace
expect 0 save 9.gsnap --parent 8.gsnap --json
check 'r["depth"] == 1'

# Moved: by a directory, and by another name in one.
mkdir moved
mv base.gsnap moved/
expect 3 ls two.gsnap
contains "$err" "one.gsnap': its parent 'base.gsnap' is missing"
contains "$err" "root $root has '"
expect 0 verify two.gsnap -P moved
mv moved/base.gsnap moved/renamed.gsnap
expect 0 verify two.gsnap --parent-dir moved
expect 0 restore two.gsnap -P moved
expect 0 offload --backing snapshot
expect 0 resume
expect 0 save three.gsnap --parent two.gsnap -P moved
expect 0 diff two.gsnap 9.gsnap -P moved
stop_server
start_server --from two.gsnap -P moved
expect 1 validate two.gsnap -P moved
contains "$out" "expert_mask"
stop_server

# Another one under the name; a damaged one.
cp other.gsnap base.gsnap
expect 1 verify two.gsnap
contains "$err" "base.gsnap' is another snapshot"
expect 0 verify two.gsnap -P moved
mv moved/renamed.gsnap base.gsnap
expect 0 ls base.gsnap --json
offset=$(query '[b for b in r["buffers"] if b["name"] == "'$weight'"][0]["file_offset"]')
printf '\377\376\375\374' | dd of=base.gsnap bs=1 seek=$((offset + 5)) conv=notrunc status=none
expect 1 verify two.gsnap --json
check "[(d['buffer'], d['leaf'], d['leaf_count'], d['file_offset']) for d in r['damage']] == [('$weight', 0, 1, $offset)]"
check 'r["damage"][0]["file"] == "base.gsnap"'
expect 1 verify two.gsnap
contains "$out" "(file offset $offset of base.gsnap)"
expect 1 flatten two.gsnap broken.gsnap
contains "$err" "'base.gsnap': buffer '$weight' leaf 0 (file offset $offset)"
[ ! -e broken.gsnap ] || fail "a full file of what is damaged"
