#!/usr/bin/env bash
# A snapshot saved on one device is proved on another, and the other way round. The devices are
# GPUSNAP_DEVICE, host by default, and host.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"

# prove_elsewhere MODEL FROM TO
prove_elsewhere()
{
	local digest root
	start_server "$checkpoints/$1" --device "$2"
	expect 0 validate --record --json
	digest=$(query 'r["digest"]')
	expect 0 save "$scratch/state.gsnap" --replace --json
	root=$(query 'r["root"]')
	stop_server
	start_server --from "$scratch/state.gsnap" --device "$3"
	expect 0 show --json
	check "r['device'] == '$3'"
	expect 0 verify "$scratch/state.gsnap" --pid "$server_pid" --json
	check "r['ok'] and r['root'] == '$root'"
	expect 0 validate --json
	check "r['proved'] and r['digest'] == '$digest'"
	expect 0 offload
	expect 0 resume
	expect 0 validate --json
	check "r['proved'] and r['digest'] == '$digest'"
	stop_server
}

for model in qwen3_moe qwen3_moe_fp8 mixtral; do
	prove_elsewhere $model "${GPUSNAP_DEVICE:-host}" host
	prove_elsewhere $model host "${GPUSNAP_DEVICE:-host}"
done
