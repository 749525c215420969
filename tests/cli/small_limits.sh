#!/usr/bin/env bash
# Little or no lockable memory, for a user whom the limit binds, and few open files: every job is
# done all the same.
# shellcheck source=tests/cli/lib.sh
. "$GPUSNAP_SOURCE/tests/cli/lib.sh"
command -v prlimit >/dev/null || {
	echo "no prlimit: skipped"
	exit 77
}

under=(prlimit --nofile=16:16)
examine "$scratch"
every_job "$scratch" "engine $engine, "
expect 0 doctor
contains "$out" "limit 16: too few"

# Locked memory is counted by user: one that nobody else is, or oneself.
become=()
if [ "$(id -u)" -eq 0 ]; then
	user=$((60000 + $$ % 5000))
	become=(setpriv "--reuid=$user" "--regid=$user" --clear-groups "--inh-caps=-all")
	chown -R "$user:$user" "$scratch"
	"${become[@]}" test -x "$GPUSNAP" -a -r "$checkpoints/mixtral/config.json" || {
		echo "user $user cannot read the source tree: skipped the rest"
		exit 77
	}
fi
for memlock in 65536 0; do
	under=("${become[@]}" prlimit "--memlock=$memlock:$memlock")
	examine "$scratch"
	check 'not r["checks"][-1]["io"]["registered"]'
	every_job "$scratch" "engine $engine, " --direct=auto
	every_job "$scratch" "engine threads, " --io=threads --direct=off
done

mkdir "$scratch/closed"
chmod 555 "$scratch/closed"
[ "$(id -u)" -ne 0 ] || chown "$user" "$scratch/closed"
expect 3 load "$checkpoints/mixtral" "$scratch/closed/a.gsnap"
contains "$err" "'$scratch/closed/a.gsnap'"
contains "$err" "Permission denied"
