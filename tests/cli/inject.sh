#!/usr/bin/env bash
# Damage to a mask, a weight, a scale and a router is found by verify and validate, which name
# that buffer and nothing else.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"
layer=model.layers.1.mlp

for mask in standard deepep; do
	start_server "$checkpoints/qwen3_moe_fp8" --ep-size 2 --ep-rank 1 --mask $mask --allow-inject
	expect 0 validate --record
	expect 0 save "$scratch/state.gsnap" --replace
	for buffer in expert_mask experts.w13_weight experts.w2_weight \
		experts.w13_weight_scale_inv experts.w2_weight_scale_inv gate.weight; do
		for kind in zero flip shift; do
			expect 0 inject $kind $layer.$buffer --json
			check 'r["bytes_changed"] > 0'
			expect 1 verify --json
			check "[d['buffer'] for d in r['damage']] == ['$layer.$buffer']"
			expect 1 validate --json
			check "set(f['buffer'] for f in r['failures']) == {'$layer.$buffer'}"
			check "set(f['layer'] for f in r['failures']) == {1}"
			expect 0 restore "$scratch/state.gsnap"
			expect 0 validate
		done
	done
	stop_server
done

# One bit of one expert's weight: that expert is named. Layout [local, hidden, intermediate].
start_server "$checkpoints/qwen3_moe_fp8" --allow-inject
expect 0 validate --record
expect 0 inject flip $layer.experts.w2_weight --offset $((5 * 256 * 192 + 77))
expect 1 validate --json
check '[(f["kind"], f["expert"]) for f in r["failures"]] == [("expert", 5)]'
stop_server

# Without --allow-inject it is refused.
start_server "$checkpoints/mixtral"
expect 2 inject zero $layer.expert_mask
stop_server
