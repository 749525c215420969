#!/usr/bin/env bash
# One libFuzzer program for $GPUSNAP_FUZZ_SECONDS (10): $1, with the dictionary $2 if there is one,
# from the corpora in the folders that follow, of which no file is cut (-max_len). What it finds to
# be new is kept for the next search, in PROGRAM.corpus; what it fails on is in PROGRAM.failures; its
# speed in PROGRAM.figures.
set -euo pipefail
program=$1 dictionary=$2
shift 2
options=("-max_total_time=${GPUSNAP_FUZZ_SECONDS:-10}" -timeout=60 -rss_limit_mb=4096 -verbosity=0
	-max_len=262144 -print_final_stats=1 "-artifact_prefix=$program.failures/")
[ ! -e "$dictionary" ] || options+=("-dict=$dictionary")
mkdir -p "$program.corpus" "$program.failures"
status=0
"$program" "${options[@]}" "$program.corpus" "$@" 2>"$program.log" || status=$?
[ $status -eq 0 ] || tail -n 100 "$program.log"
awk -v name="${program##*/}" -F': *' '/number_of_executed_units/ { units = $NF }
	/average_exec_per_sec/ { rate = $NF }
	END { printf "%s: %d executions, %d executions/s\n", name, units, rate }' \
	"$program.log" | tee "$program.figures"
exit $status
