#!/usr/bin/env bash
# One buffer of a snapshot comes out as safetensors or raw, to a file or a pipe; never unverified.
# shellcheck source=tests/cli/lib.sh
. "$GPUSNAP_SOURCE/tests/cli/lib.sh"

file=$scratch/a.gsnap
expect 0 load "$checkpoints/mixtral" "$file"
expect 0 ls "$file" --json
name=$(query 'max(r["buffers"], key=lambda b: b["bytes"])["name"]')
digest=$(query 'max(r["buffers"], key=lambda b: b["bytes"])["digest"]')
offset=$(query 'max(r["buffers"], key=lambda b: b["bytes"])["file_offset"]')
bytes=$(query 'max(r["buffers"], key=lambda b: b["bytes"])["bytes"]')
tail -c +$((offset + 1)) "$file" | head -c "$bytes" >"$scratch/wanted" || true

expect 0 extract "$file" "$name" --raw -o "$scratch/raw" --json
check "r['digest'] == '$digest' and r['bytes'] == $bytes == r['file_bytes']"
cmp "$scratch/wanted" "$scratch/raw" || fail "other bytes"
expect 0 extract "$file" "$name" -o "$scratch/one.safetensors"
contains "$out" "$digest"
python3 - "$scratch/one.safetensors" "$scratch/wanted" "$name" <<'PYTHON' || fail "the header"
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
assert list(header) == [sys.argv[3]], header
assert header[sys.argv[3]]["data_offsets"] == [0, len(data) - 8 - n]
assert data[8 + n:] == open(sys.argv[2], "rb").read()
PYTHON
"$GPUSNAP" extract "$file" "$name" >"$scratch/piped" || fail "to standard output"
cmp "$scratch/one.safetensors" "$scratch/piped" || fail "standard output differs from the file"
"$GPUSNAP" extract "$file" "$name" -o - --raw | cmp - "$scratch/wanted" || fail "-o -"

expect 3 extract "$file" "$name" -o "$scratch/raw"
contains "$err" "exists"
expect 0 extract "$file" "$name" -o "$scratch/raw" --raw --replace
expect 2 extract "$file" "$name" --json
contains "$err" "-o OUT"
expect 2 extract "$file"
contains "$err" "NAME is missing"
expect 2 extract "$file" no.such.buffer -o "$scratch/none"
contains "$err" "no.such.buffer"
expect 3 extract "$scratch/none.gsnap" "$name" -o "$scratch/none"
# A container may have no terminals to give; then this one check cannot be made, which is said.
status=0
python3 -c 'import os, pty, sys
try:
    os.close(pty.openpty()[0])
except OSError as error:
    print("no terminal to try:", error)
    sys.exit(2)
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' \
	"$GPUSNAP" extract "$file" "$name" >"$scratch/tty" </dev/null || status=$?
[ $status -eq 2 ] || fail "to a terminal: $status $(head -c 500 "$scratch/tty")"

printf '\377\376\375\374' | dd of="$file" bs=1 seek=$((offset + 5)) conv=notrunc status=none
expect 1 extract "$file" "$name" -o "$scratch/none"
contains "$err" "leaf 0 (file offset $offset)"
[ ! -e "$scratch/none" ] || fail "a file of what could not be verified"
