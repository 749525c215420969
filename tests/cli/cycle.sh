#!/usr/bin/env bash
# The main job on every rank: record, save, offload, restore, verify, validate. $1: checkpoint.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"
model=$1

# Resident set in KiB, exact (VmRSS is an estimate).
rss_kib()
{
	awk '/^Rss:/ {print $2}' "/proc/$server_pid/smaps_rollup"
}

# cycle TP_SIZE TP_RANK EP_SIZE EP_RANK MASK
cycle()
{
	local digest root before after state
	start_server "$checkpoints/$model" --tp-size "$1" --tp-rank "$2" --ep-size "$3" \
		--ep-rank "$4" --mask "$5"
	expect 0 validate --record --json
	digest=$(query 'r["digest"]')
	check 'r["proved"] and r["layers"] >= 1 and r["experts_swept"] > 0 and r["failures"] == []'
	expect 0 save "$scratch/state.gsnap" --replace --json
	root=$(query 'r["root"]')
	before=$(rss_kib)
	expect 0 offload --json
	check 'r["freed_bytes"] >= 0'
	after=$(rss_kib)
	expect 0 show --json
	check 'all(g["resident_bytes"] == 0 and g["state"] == "offloaded" for g in r["regions"])'
	state=$(query 'sum(b["bytes"] for b in r["buffers"]) // 1024')
	# The snapshot that stays open takes some heap. Where a sanitizer keeps memory of its own, or a
	# GPU holds the state, the figure means nothing.
	[ -n "${GPUSNAP_SANITIZED:-}" ] || [ "${GPUSNAP_DEVICE:-host}" != host ] ||
		[ $((before - after)) -ge $((state - 256)) ] ||
		fail "resident set fell by $((before - after)) KiB, the state has $state KiB"
	expect 7 validate
	contains "$err" "not resident"
	expect 0 restore "$scratch/state.gsnap" --json
	check "r['root'] == '$root'"
	expect 0 verify --json
	check "r['ok'] and r['damage'] == [] and r['root'] == '$root'"
	expect 0 validate --json
	check "r['proved'] and r['digest'] == '$digest'"
	expect 0 validate "$scratch/state.gsnap" --json
	check "r['proved'] and r['digest'] == '$digest'"
	stop_server
}

for mask in standard mori deepep; do
	cycle 1 0 1 0 $mask
done
for ep in 2 4; do
	for rank in $(seq 0 $((ep - 1))); do
		cycle 1 0 $ep "$rank" standard
	done
done
for rank in 0 1; do
	cycle 2 $rank 1 0 standard
done
cycle 2 1 2 1 deepep
