#!/usr/bin/env bash
# MoE outputs agree with another engine's values within the float64 bound, router ids exactly.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"

models=(qwen3_moe qwen3_moe_fp8 mixtral qwen2_moe glm4_moe deepseek_v3 deepseek_v3_fp8 deepseek_v4
	deepseek_v4_fp4 gpt_oss gpt_oss_mxfp4)
for model in "${models[@]}"; do
	start_server "$checkpoints/$model"
	expect 0 validate --reference "$checkpoints/$model/reference.safetensors" --json
	check 'r["proved"] and len(r["reference"]) == r["layers"] >= 1'
	check 'all(m["ids_equal"] and m["max_error_over_bound"] <= 1 for m in r["reference"])'
	stop_server
done

# Another model's values must not agree, and a partial rank cannot be compared.
start_server "$checkpoints/mixtral"
expect 1 validate --reference "$checkpoints/qwen3_moe/reference.safetensors"
stop_server
start_server "$checkpoints/mixtral" --ep-size 2
expect 2 validate --reference "$checkpoints/mixtral/reference.safetensors"
contains "$err" "rank"
stop_server

# A FIFO is refused, not waited for; router values without the block's input are not passed over.
start_server "$checkpoints/mixtral"
mkfifo "$scratch/fifo"
expect 2 validate --reference "$scratch/fifo"
contains "$err" "$scratch/fifo"
python3 -c 'import sys
data = open(sys.argv[1], "rb").read()
name = b"\"model.layers.1.mlp.in\""
assert data.count(name) == 1
open(sys.argv[2], "wb").write(data.replace(name, b"\"model.layers.1.mlp.xx\""))' \
	"$checkpoints/mixtral/reference.safetensors" "$scratch/no_input"
expect 4 validate --reference "$scratch/no_input"
contains "$err" "but no 'model.layers.1.mlp.in'"
stop_server

# A weight that changed by one bit of its exponent is outside the bound.
start_server "$checkpoints/mixtral" --allow-inject
expect 0 inject zero model.layers.1.mlp.experts.w2_weight --length 4096
expect 1 validate --reference "$checkpoints/mixtral/reference.safetensors" --json
check '[m["agrees"] for m in r["reference"]] == [True, False]'
stop_server
