#!/usr/bin/env bash
# Faults planted in running servers: validate names the damaged object, and no other. Beside it what
# a naturally routed decode alone would have seen. The table is that of dispatch/proof.md.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"

table=$scratch/table

# open_state CHECKPOINT ARGUMENT...: a server whose state is recorded and saved.
open_state()
{
	start_server "$checkpoints/$1" --allow-inject "${@:2}"
	expect 0 validate --record --tokens 2 --steps 2
	expect 0 save "$scratch/state.gsnap" --replace
}

# plant FAULT BUFFER EXPERT: after inject; BUFFER must be named with EXPERT ("None": none), alone.
plant()
{
	local seen=no
	expect 1 validate --json
	check "[(f['buffer'], f['expert']) for f in r['failures']] == [('$2', $3)]"
	"$GPUSNAP" validate --checks=decode >"$scratch/decode" 2>&1 || seen=yes
	printf '| %s | %s | %s | %s |\n' "$1" "${2##*layers.?.mlp.}" "${3/None/}" $seen >>"$table"
	expect 0 restore "$scratch/state.gsnap"
}

close_state()
{
	expect 0 validate
	stop_server
}

# inject ARGUMENT...: it must change something.
inject()
{
	expect 0 inject "$@"
}

layer=model.layers.1.mlp
mask=$layer.expert_mask
map=$layer.expert_map

# Experts 4 to 7 of 8; values of 4 bytes, the last of 9 is the sentinel.
open_state qwen3_moe_fp8 --ep-size 2 --ep-rank 1 --mask vllm_aiter --expert-maps
inject zero $mask
plant "mask all zero" $mask None
inject set $mask --value 1
plant "mask all one" $mask None
inject shift $mask
plant "mask shifted by one" $mask None
inject set $mask --value 0 --offset 20 --length 4
plant "mask: one bit lost in the middle" $mask None
inject set $mask --value 1 --offset 8 --length 4
plant "mask: one bit too many" $mask None
inject copy $mask --source $mask --from 16 --length 16
inject zero $mask --offset 16 --length 16
plant "mask of another rank" $mask None
inject set $mask --value 1 --offset 32
plant "mask: sentinel set" $mask None
inject copy $mask --source $map --length 32
plant "index map in place of the mask" $mask None
inject swap $map --offset 20 --length 4 --from 24
plant "index map: two experts swapped" $map None
inject shift $map
plant "index map shifted by one" $map None
inject copy $map --source $mask --length 32
plant "mask in place of the index map" $map None
close_state

# 8 experts; w13 [2 * 192, 256], w2 [256, 192] of one byte, blocks of 128 x 128.
w13=$layer.experts.w13_weight
w2=$layer.experts.w2_weight
matrix=$((256 * 192))
open_state qwen3_moe_fp8
inject zero $w13 --offset $((2 * 2 * matrix)) --length $((2 * matrix))
plant "one expert's weights zero" $w13 2
inject flip $w2 --offset $((5 * matrix + 77))
plant "one bit of one weight" $w2 5
inject zero ${w13}_scale_inv --offset 24 --length 4
plant "scale of one block zero" ${w13}_scale_inv 0
inject add ${w2}_scale_inv --value $((1 << 23)) --offset 4 --length 4
plant "scale of one block doubled" ${w2}_scale_inv 0
inject set $w13 --value 127 --offset $((3 * 2 * matrix + 1000)) --length 1
plant "FP8 NaN code" $w13 3
inject swap $w13 --offset $((2 * matrix)) --length $matrix --from $((3 * matrix))
plant "gate and up swapped" $w13 1
inject swap $layer.gate.weight --offset $((2 * 512)) --length 512 --from $((6 * 512))
plant "two router rows swapped" $layer.gate.weight None
inject add ${w13}_scale_inv --value $((1 << 23))
plant "FNUZ doubling of the scales" ${w13}_scale_inv 0
close_state

# The other families' routers.
if [ "${GPUSNAP_DEVICE:-host}" = host ]; then
	open_state gpt_oss
	inject transpose $w2 --rows 128 --offset $((3 * 2 * 128 * 128)) --length $((2 * 128 * 128))
	plant "w2 transposed (square)" $w2 3
	inject zero $layer.experts.w13_bias --offset $((6 * 512)) --length 512
	plant "one expert's bias zero" $layer.experts.w13_bias 6
	inject zero $layer.gate.bias
	plant "router bias zero" $layer.gate.bias None
	close_state

	open_state gpt_oss_mxfp4
	size=$((320 * 128 / 2))
	inject nibbles $w13 --offset $((2 * size)) --length $size
	plant "MXFP4 nibbles swapped" $w13 2
	inject add ${w2}_scale_inv --value 1 --offset 9 --length 1
	plant "E8M0 exponent + 1" ${w2}_scale_inv 0
	inject set ${w2}_scale_inv --value 255 --offset 9 --length 1
	plant "E8M0 NaN code" ${w2}_scale_inv 0
	close_state

	open_state deepseek_v3
	inject zero $layer.gate.e_score_correction_bias
	plant "correction bias zero" $layer.gate.e_score_correction_bias None
	close_state

	open_state deepseek_v4
	inject zero model.layers.0.mlp.gate.tid2eid
	plant "hash table zero" model.layers.0.mlp.gate.tid2eid None
	close_state

	grep '^| .* | .* | .* | \(yes\|no\) |$' "$GPUSNAP_SOURCE/dispatch/proof.md" >"$scratch/documented" || true
	diff "$scratch/documented" "$table" || fail "dispatch/proof.md has another table"
fi
