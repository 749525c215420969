#!/usr/bin/env bash
# Every job on the file systems that treat O_DIRECT differently, and -v says what was found. Mounts
# are made in a mount namespace, and in a user namespace where the caller is not root.
if [ -z "${FILE_SYSTEMS_INSIDE:-}" ]; then
	as_root=()
	[ "$(id -u)" -eq 0 ] || as_root=(--user --map-root-user)
	unshare --mount "${as_root[@]}" true 2>/dev/null || {
		echo "no mount namespace can be made here: skipped"
		exit 77
	}
	exec env FILE_SYSTEMS_INSIDE=1 unshare --mount "${as_root[@]}" "$0"
fi
# shellcheck source=tests/cli/lib.sh
. "$GPUSNAP_SOURCE/tests/cli/lib.sh"
disk=$scratch/disk
mkdir "$disk"
mount_point=$disk
tried=0

# mounted NAME ARGUMENT...: mount(8) there, or say that NAME is skipped.
mounted()
{
	local name=$1
	shift
	mount "$@" "$disk" 2>"$scratch/why" || {
		echo "$name: skipped: $(head -1 "$scratch/why")"
		return 1
	}
	tried=$((tried + 1))
}

# direct_jobs NAME: what the folder's file system is called, and O_DIRECT with every engine.
direct_jobs()
{
	examine "$disk"
	contains "$out" "\"file_system\":\"$1\""
	[ "$direct" = True ] || {
		every_job "$disk" "engine threads, page cache"
		return
	}
	every_job "$disk" "engine $engine, O_DIRECT" --direct=on
	every_job "$disk" "$1 takes direct I/O at multiples of " --direct=on
	every_job "$disk" "engine aio, O_DIRECT" --io=aio
	every_job "$disk" "engine threads, page cache" --direct=off
}

if mounted tmpfs -t tmpfs -o size=64m none; then
	every_job "$disk" "tmpfs is better used cached"
	expect 4 load --direct=on "$checkpoints/mixtral" "$disk/a.gsnap"
	contains "$err" "tmpfs keeps files in memory; use auto"
	[ -z "$(ls -A "$disk")" ] || fail "left behind: $(ls -A "$disk")"
	umount "$disk"
fi

mkdir "$scratch/lower" "$scratch/upper" "$scratch/work"
if mounted overlay -t overlay \
	-o "lowerdir=$scratch/lower,upperdir=$scratch/upper,workdir=$scratch/work" none; then
	direct_jobs overlay
	umount "$disk"
fi

for kind in ext4 xfs; do
	command -v "mkfs.$kind" >/dev/null || {
		echo "$kind: skipped: there is no mkfs.$kind"
		continue
	}
	truncate -s 320M "$scratch/image"
	"mkfs.$kind" -q "$scratch/image"
	if mounted "$kind" -o loop "$scratch/image"; then
		direct_jobs "$kind"
		mount -o remount,ro "$disk"
		expect 3 load "$checkpoints/mixtral" "$disk/a.gsnap"
		contains "$err" "Read-only"
		umount "$disk"
	fi
	rm "$scratch/image"
done
[ $tried -gt 0 ] || exit 77
