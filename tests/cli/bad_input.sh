#!/usr/bin/env bash
# Bad input gets one clear error and its status; live state and files stay as they were.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"

one_line()
{
	[ "$(wc -l <<<"$err")" -eq 1 ] || fail "more than one line: $err"
	contains "$err" "$1"
}

damaged=$scratch/damaged
fresh()
{
	rm -rf "$damaged"
	cp -r "$checkpoints/mixtral" "$damaged"
}

expect 3 serve "$scratch/nowhere"
one_line "$scratch/nowhere"
mkdir "$scratch/empty"
expect 3 serve "$scratch/empty"
one_line "config.json"
fresh
truncate -s -1 "$damaged/model-00002-of-00003.safetensors"
expect 4 serve "$damaged"
one_line "model-00002-of-00003.safetensors"
fresh
sed -i '/block_sparse_moe.experts.3.w2.weight/d' "$damaged/model.safetensors.index.json"
expect 4 serve "$damaged"
one_line "experts.3.w2.weight"
fresh
rm "$damaged/model-00003-of-00003.safetensors"
expect 3 serve "$damaged"
one_line "model-00003-of-00003.safetensors"
expect 2 serve "$checkpoints/mixtral" --ep-size 9
one_line "ep_size 9 exceeds the model's 8 experts"
expect 2 serve "$checkpoints/mixtral" --tp-size 2 --tp-rank 2
contains "$err" "--tp-rank 2"
expect 5 serve "$checkpoints/mixtral" --device cuda:99
one_line "cuda:99"
expect 2 serve
expect 2 frobnicate
contains "$err" "frobnicate"

# A socket that is not ours, and one where nobody is.
python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
for _ in range(2):
    c, _ = s.accept()
    c.recv(4096)
    c.sendall(b"220 mail.example ESMTP\r\n")
    c.close()' "$scratch/stranger" &
stranger=$!
until [ -S "$scratch/stranger" ]; do sleep 0.02; done
expect 4 show --socket "$scratch/stranger"
one_line "stranger"
expect 3 show --socket "$scratch/nobody"
one_line "nobody"
kill $stranger 2>/dev/null || true

start_server "$checkpoints/mixtral"
expect 0 validate --record --json
digest=$(query 'r["digest"]')
expect 0 save "$scratch/one.gsnap"
sum=$(cksum <"$scratch/one.gsnap")
expect 3 save "$scratch/one.gsnap"
one_line "--replace"
expect 3 save "$scratch/nowhere/x.gsnap"
one_line "nowhere"

# Snapshots of another model and of another rank.
expect 0 load "$checkpoints/qwen3_moe" "$scratch/other.gsnap"
expect 1 restore "$scratch/other.gsnap"
one_line "model.layers"
expect 0 load "$checkpoints/mixtral" "$scratch/rank.gsnap" --ep-size 2 --ep-rank 1
expect 1 restore "$scratch/rank.gsnap"
one_line "expert-parallel rank 0 of 1 here, 1 of 2 in the snapshot"
# A damaged one: a flipped bit in the seal, the header, and the end cut off.
for offset in -100 40; do
	cp "$scratch/one.gsnap" "$scratch/bad.gsnap"
	python3 -c 'import sys
f = open(sys.argv[1], "r+b")
f.seek(int(sys.argv[2]), 2 if int(sys.argv[2]) < 0 else 0)
b = f.read(1)
f.seek(-1, 1)
f.write(bytes([b[0] ^ 1]))' "$scratch/bad.gsnap" "$offset"
	expect 1 restore "$scratch/bad.gsnap"
	one_line "bad.gsnap"
done
truncate -s -4096 "$scratch/bad.gsnap"
expect 4 restore "$scratch/bad.gsnap"
one_line "bad.gsnap"
expect 4 restore "$checkpoints/mixtral/config.json"
expect 3 restore "$scratch/missing.gsnap"
expect 2 validate --reference "$scratch/one.gsnap" --record
expect 7 resume
expect 7 offload no_such_tag
one_line "no_such_tag"

# Nothing of all this touched state or file.
[ "$(cksum <"$scratch/one.gsnap")" = "$sum" ] || fail "one.gsnap changed"
expect 0 verify
expect 0 validate --json
check "r['digest'] == '$digest'"

# Several agents: the choice is asked for, with the list.
first=$server_pid
start_server "$checkpoints/mixtral"
expect 2 show
contains "$err" "$first"
contains "$err" "$server_pid"
expect 0 show -p "$first"
stop_server
server_pid=$first
stop_server

# A damaged data byte is found while restoring into a fresh process, and named.
cp "$scratch/one.gsnap" "$scratch/bad.gsnap"
printf '\377' | dd of="$scratch/bad.gsnap" bs=1 seek=100000 conv=notrunc status=none
expect 1 serve --from "$scratch/bad.gsnap"
one_line "leaf"
expect 1 verify "$scratch/bad.gsnap" --json
check 'len(r["damage"]) == 1'

# A tensor that nobody expected is kept and named; --strict refuses it.
fresh
LC_ALL=C sed -i 's/lm_head[.]weight/lm_tail.weight/' "$damaged"/model*
expect 4 load "$damaged" "$scratch/odd.gsnap"
one_line "the model lacks 1 tensors: lm_head.weight"
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$damaged/config.json"
expect 0 load "$damaged" "$scratch/odd.gsnap" --json
one_line "1 tensors are none of mixtral's, kept as they are: lm_tail.weight"
check 'r["unexpected"] == ["lm_tail.weight"] and r["padding"] == 0'
expect 4 load "$damaged" "$scratch/odd2.gsnap" --strict
one_line "1 tensors are none of mixtral's: lm_tail.weight"
expect 0 load "$checkpoints/mixtral" "$scratch/padded.gsnap" --tp-size 3 --tp-rank 2 --json
one_line "of the buffers are padding"
check 'r["padding"] > 0 and r["unexpected"] == []'

# A family that is unknown is kept, saved and verified, and says what that costs.
fresh
sed -i 's/"model_type": "mixtral"/"model_type": "dbrx"/' "$damaged/config.json"
expect 0 load "$damaged" "$scratch/plain.gsnap" --json
one_line "family is unknown"
expect 2 load "$damaged" "$scratch/plain2.gsnap" --record
contains "$err" "needs a model with MoE layers"
expect 4 load "$damaged" "$scratch/plain2.gsnap" --ep-size 2
one_line "model_type 'dbrx' is unknown, and loaded whole only"
start_server --from "$scratch/plain.gsnap"
expect 0 verify
expect 0 offload
expect 0 resume
expect 2 validate
one_line "no MoE layer"
stop_server

# Values that cannot be meant.
expect 2 show --pid 0
contains "$err" "--pid"
expect 2 save "$scratch/x.gsnap" --block-size 16000000T
contains "$err" "--block-size: '16000000T'"
status=0
"$GPUSNAP" --help >/dev/full 2>"$scratch/err" || status=$?
[ $status -eq 3 ] || fail "help to a full device: status $status"

# Nothing that is printed gets into a file that took the number of a closed stream.
status=0
"$GPUSNAP" load "$checkpoints/mixtral" "$scratch/closed.gsnap" --record <&- >&- 2>&- || status=$?
[ $status -eq 3 ] || fail "all streams closed: status $status"
expect 0 verify "$scratch/closed.gsnap"

# The socket that a killed server left, its pid now another's, is no agent.
start_server "$checkpoints/mixtral"
python3 -c 'import socket, sys
socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$XDG_RUNTIME_DIR/gpusnap/$$.sock"
expect 0 ps --json
check "[p['pid'] for p in r['processes']] == [$server_pid]"
expect 0 show
expect 2 show --pid $$
contains "$err" "process $$ has no agent"
stop_server

# No name in a file speaks to the terminal; JSON and other writing systems keep theirs.
fresh
python3 -c 'import sys
p = sys.argv[1] + "/model-00001-of-00003.safetensors"
i = sys.argv[1] + "/model.safetensors.index.json"
for name in (p, i):
    data = open(name, "rb").read()
    assert data.count(b"\"lm_head.weight\"") == 1
    data = data.replace(b"\"lm_head.weight\"", b"\"l\\u001b[31m\xc3\xbc.\"")
    open(name, "wb").write(data)' "$damaged"
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$damaged/config.json"
expect 0 load "$damaged" "$scratch/escape.gsnap"
expect 0 ls "$scratch/escape.gsnap"
contains "$out" 'l\x1b[31mü.'
expect 0 ls "$scratch/escape.gsnap" --json
check "'l\x1b[31mü.' in [b['name'] for b in r['buffers']]"
start_server --from "$scratch/escape.gsnap"
expect 0 show
contains "$out" 'l\x1b[31mü.'
expect 2 inject zero model.norm.weight
one_line "without --allow-inject"
stop_server
