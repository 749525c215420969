# Sourced by every test of the command line. Each test gets a scratch folder and a runtime
# directory of its own, so that no agent of another test is seen.
# shellcheck shell=bash
set -euo pipefail

: "${GPUSNAP:?path of the command}" "${GPUSNAP_SOURCE:?source tree}"
# shellcheck disable=SC2034 # for the tests
checkpoints=$GPUSNAP_SOURCE/tests/data/checkpoints
scratch=$(mktemp -d)
export XDG_RUNTIME_DIR=$scratch/run
mkdir -m 0700 "$XDG_RUNTIME_DIR"
server_pid=
mount_point= # what is mounted inside the scratch folder
under=() # what the command is run by: a launcher and its arguments
trap finish EXIT

finish()
{
	local status=$?
	[ -z "$server_pid" ] || kill -9 "$server_pid" 2>/dev/null || true
	[ -z "$mount_point" ] || umount "$mount_point" 2>/dev/null || true
	rm -rf "$scratch"
	exit $status
}

fail()
{
	echo "FAILED at line ${BASH_LINENO[1]}: $*" >&2
	exit 1
}

# start_server ARGUMENT...: gpusnap serve in the background, until it is ready; on GPUSNAP_DEVICE
# where the arguments name no device.
start_server()
{
	"${under[@]}" "$GPUSNAP" serve --device "${GPUSNAP_DEVICE:-host}" "$@" >"$scratch/ready" 2>"$scratch/server.err" &
	server_pid=$!
	for _ in $(seq 600); do
		grep -q "^ready pid=$server_pid socket=" "$scratch/ready" && return
		kill -0 "$server_pid" 2>/dev/null || fail "serve $*: $(cat "$scratch/server.err")"
		sleep 0.05
	done
	fail "serve $* is not ready"
}

# stop_server: SIGTERM must end it cleanly.
stop_server()
{
	local status=0
	kill -TERM "$server_pid"
	wait "$server_pid" || status=$?
	server_pid=
	[ $status -eq 0 ] || fail "the server ended with $status: $(cat "$scratch/server.err")"
}

# expect STATUS ARGUMENT...: run gpusnap; its output is in $out, its errors in $err.
expect()
{
	local wanted=$1 status=0
	shift
	out=$("${under[@]}" "$GPUSNAP" "$@" 2>"$scratch/err") || status=$?
	err=$(cat "$scratch/err")
	[ $status -eq "$wanted" ] || fail "gpusnap $*: status $status, expected $wanted: $out $err"
}

# examine FOLDER: how files there would be written, in $engine and $direct ("True" or "False").
examine()
{
	expect 0 doctor --json "$1"
	# shellcheck disable=SC2034 # for the tests
	engine=$(query 'r["checks"][-1]["io"]["engine"]') direct=$(query 'r["checks"][-1]["io"]["direct"]')
}

# every_job FOLDER TEXT OPTION...: each command that reads or writes files there says TEXT with -v.
every_job()
{
	local folder=$1 text=$2
	shift 2
	expect 0 load -v "$@" --replace "$checkpoints/mixtral" "$folder/loaded.gsnap"
	contains "$err" "$text"
	expect 0 verify -v "$@" "$folder/loaded.gsnap"
	contains "$err" "$text"
	expect 0 extract -v "$@" --replace -o "$folder/one" "$folder/loaded.gsnap" lm_head.weight
	contains "$err" "$text"
	start_server --from "$folder/loaded.gsnap"
	expect 0 validate --record
	expect 0 save -v "$@" --read-back --replace "$folder/saved.gsnap"
	contains "$err" "$text"
	expect 0 offload --backing snapshot
	expect 0 resume -v "$@"
	contains "$err" "$text"
	expect 0 restore -v "$@" "$folder/saved.gsnap"
	contains "$err" "$text"
	expect 0 validate
	stop_server
	rm "$folder/loaded.gsnap" "$folder/saved.gsnap" "$folder/one"
}

# query EXPRESSION: evaluate Python over the JSON in $out, called r; prints the result.
query()
{
	python3 -c 'import json, sys
r = json.loads(sys.argv[1])
assert r["schema"] == 1
print(eval(sys.argv[2]))' "$out" "$1"
}

# check EXPRESSION: it must be true of the JSON in $out.
check()
{
	[ "$(query "$1")" = True ] || fail "$1 does not hold for $out"
}

# contains TEXT PATTERN
contains()
{
	grep -qF -- "$2" <<<"$1" || fail "'$2' is not in: $1"
}
