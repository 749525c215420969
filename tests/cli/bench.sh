#!/usr/bin/env bash
# The benchmark measures every row that is asked for beside its ceiling, says which it could not,
# and leaves no file behind. Figures are not looked at.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"
device=${GPUSNAP_DEVICE:-host}
files=$scratch/files
mkdir "$files"

left_nothing()
{
	[ -z "$(ls -A "$files")" ] || fail "left behind: $(ls -A "$files")"
}

rows=offload-first,resume,offload-unchanged,save,restore-cold,restore-warm,digest,memory
expect 0 bench "$files" --device "$device" --size 64M --repeat 2 --only "$rows" --json
check "[row['row'] for row in r['rows']] == '$rows'.split(',')"
check "r['ok'] and r['failures'] == [] and r['state_bytes'] == 64 << 20"
check "all(row['figure'] > 0 and row['ceiling'] > 0 and row['repeats'] == 2 for row in r['rows'])"
check "all(row['ratio_lowest'] <= row['ratio'] <= row['ratio_highest'] for row in r['rows'])"
check "all(row['met'] == (row['ratio'] <= row['goal'] if row['unit'] == 'bytes' else
	row['ratio'] >= row['goal']) for row in r['rows'])"
left_nothing

expect 0 bench "$files" --device "$device" --size 64M --repeat 1 --only decode-fp8-1,decode-bf16-8
[ "$(grep -c '^decode-.*GB/s .*>= 0\.' <<<"$out")" = 2 ] || fail "$out"
left_nothing

# A row that fails is named; the others are measured. tmpfs has had O_DIRECT since Linux 6.5 only.
if mount -t tmpfs -o size=64m none "$files" 2>/dev/null; then
	mount_point=$files
	expect 6 bench "$files" --device "$device" --size 64M --only save --json
	check "r['error']['status'] == 'E_LIMIT' and 'three times --size' in r['error']['message']"
	left_nothing
	umount "$files"
	mount_point=
fi

expect 2 bench --only save,nothing
[[ $err == *"no row is called 'nothing'"* ]] || fail "$err"
expect 2 bench --size 1000000
[[ $err == *"a multiple of 64M"* ]] || fail "$err"
expect 3 bench "$scratch/nowhere"
[[ $err == *"$scratch/nowhere: a folder cannot be made in it"* ]] || fail "$err"
expect 5 bench "$files" --device cuda:99
left_nothing

# Interrupted in the middle of a save: the files go, the status says which signal.
"$GPUSNAP" bench "$files" --device "$device" --size 256M --repeat 32 --only save >/dev/null &
bench_pid=$!
for _ in $(seq 600); do
	compgen -G "$files/gpusnap-bench-*/*" >/dev/null && break
	sleep 0.05
done
kill -TERM $bench_pid
status=0
wait $bench_pid || status=$?
[ $status -eq 143 ] || fail "status $status after SIGTERM"
left_nothing
