#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An independent reader of gsnap files, written from formats/gsnap.md alone.

gsnap_reader.py [--quiet] FILE...

Prints the entries of each file with their digests and checks everything that the specification
tells a reader to check, of a delta with all files of its chain, which must lie beside it. Digests need the module `xxhash` (PyPI); without it only the structure is
checked, which is said on stderr. Exit status: 0 all files are whole, 1 at least one is not, 2 usage.
"""

import argparse
import json
import os
import re
import struct
import sys
import uuid

try:
    import xxhash
except ImportError:
    xxhash = None

MAGIC = b"\x89GSNP\r\n\x1a"
SEAL_BYTES = 4096
LEAF_BYTES = 65536
HEADER_MAX = 100_000_000
NAME_MAX = 4096
INTEGER_MAX = 2**63 - 1
EXPERTS_MAX = 65536
WIDTH_MAX = 1_048_576
DEPTH_MAX, ENTRIES_MAX, RUNS_MAX = 8, 2_162_688, 524_288
FEATURE_DELTA = 1
LEAVES, SEAL = "gpusnap.leaves", "gpusnap.seal"
BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
        "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
        "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}
POLICIES = {"keep", "zero", "discard", "recompute"}
ROLES = {"other", "weight", "scale", "router", "bias", "expert_mask", "expert_map", "kv"}
SLOTS = ("router", "w13", "w13_scale", "w2", "w2_scale", "mask", "norm")


class Fault(Exception):
    """The file is not what it should be; the text starts with the kind of the fault."""


def need(condition, text, kind="malformed"):
    if not condition:
        raise Fault(f"{kind}: {text}")


def xxh3(data):
    return xxhash.xxh3_128(data).digest() if xxhash else None


def need_digest(data, expected, what):
    found = xxh3(data)
    need(found is None or found == expected,
         f"{what}: digest is {expected.hex()}, its bytes give {found and found.hex()}", "corrupt")


# ---- members of JSON objects ----

def member(obj, key, kind):
    need(isinstance(obj, dict) and key in obj, f"'{key}' is missing")
    value = obj[key]
    good = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    need(good, f"'{key}' is {value!r:.60}")
    return value


def integer(obj, key, low=0, high=INTEGER_MAX):
    value = member(obj, key, int)
    need(low <= value <= high, f"'{key}' is {value}, expected {low} to {high}")
    return value


def text(obj, key):
    value = member(obj, key, str)
    need(0 < len(value.encode()) <= NAME_MAX and "\0" not in value, f"'{key}' is empty or too long")
    return value


def word(obj, key, known):
    value = text(obj, key)
    need(value in known, f"'{key}' is '{value}', known are {', '.join(sorted(known))}")
    return value


def integers(obj, key, low, most=64):
    values = member(obj, key, list)
    need(len(values) <= most, f"'{key}' has {len(values)} items")
    for value in values:
        need(isinstance(value, int) and not isinstance(value, bool) and low <= value <= INTEGER_MAX,
             f"'{key}' holds {value!r}")
    return values


def position(obj, key):
    pair = integers(obj, key, 0)
    need(len(pair) == 2 and pair[0] < pair[1] < 2**32, f"'{key}' is {pair}, expected [rank, size]")
    return pair


def digest(obj, key):
    value = text(obj, key)
    need(re.fullmatch("[0-9a-fA-F]{32}", value), f"'{key}' is no digest: {value:.60}")
    return bytes.fromhex(value)


def parse_json(data, what):
    def no_duplicates(pairs):
        keys = [key for key, _ in pairs]
        need(len(keys) == len(set(keys)), f"{what}: a key is there twice")
        return dict(pairs)

    def no_constant(name):
        raise Fault(f"malformed: {what}: {name} is no JSON")

    try:
        return json.loads(data, object_pairs_hook=no_duplicates, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise Fault(f"malformed: {what}: {error}") from None


# ---- seal, section 5 ----

def read_seal(data, file_bytes):
    """Checks 2 to 9, in that order. Returns the fields as a dictionary."""
    if data[:8] != MAGIC:
        incomplete = not any(data) or MAGIC in data
        raise Fault("malformed: incomplete snapshot" if incomplete else "malformed: not a snapshot")
    need_digest(data[:4080], data[4080:], "seal")
    version, length, required, _ = struct.unpack_from("<IIQQ", data, 8)
    need(version != 0, "version 0")
    need(version == 1, f"version {version}, this reader reads 1", "unsupported")
    need(required & ~FEATURE_DELTA == 0, f"required features {required:#x}, this reader knows 0x1", "unsupported")
    file_length, data_offset, leaf_count, leaf_log2 = struct.unpack_from("<QQQI", data, 112)
    need(length == SEAL_BYTES and leaf_log2 == 16, f"seal of {length} bytes, leaves of 2^{leaf_log2}")
    need(not any(data[140:4080]), "reserved bytes of the seal are not zero")
    need(any(data[96:112]) == (required == FEATURE_DELTA), "a parent root without the feature for it, or reversed")
    need_digest(data[8:12] + data[48:80] + data[112:120] + data[96:112], data[80:96], "root")
    need(file_length == file_bytes, f"file of {file_bytes} bytes, its seal says {file_length}")
    need(data_offset % 4096 == 0 and data_offset != 0, f"data begins at {data_offset}")
    need(data_offset + 16 * leaf_count + SEAL_BYTES <= file_bytes, f"{leaf_count} leaves do not fit")
    return {"uuid": str(uuid.UUID(bytes=data[32:48])), "header": data[48:64], "leaves": data[64:80],
            "root": data[80:96], "parent": data[96:112] if required else None, "data": data_offset, "leaf_count": leaf_count, "file": file_length}


# ---- header, section 2 ----

def tensor_bytes(dtype, shape):
    bits = BITS[dtype]
    for dimension in shape:
        bits *= dimension
    need(bits % 8 == 0 and bits // 8 < 2**64, f"{dtype} {shape} is no number of bytes")
    return bits // 8


def read_tensors(header, data_bytes):
    """List of (name, dtype, shape, begin, end) in file order, which tile the data section."""
    tensors = []
    for name, value in header.items():
        if name == "__metadata__":
            continue
        dtype, shape = word(value, "dtype", BITS), integers(value, "shape", 0)
        offsets = integers(value, "data_offsets", 0)
        need(len(offsets) == 2 and offsets[1] - offsets[0] == tensor_bytes(dtype, shape),
             f"tensor '{name}': offsets {offsets}")
        tensors.append((name, dtype, shape, *offsets))
    tensors.sort(key=lambda tensor: (tensor[3], tensor[4], tensor[0].encode("utf-8", "surrogatepass")))
    at = 0
    for name, _, _, begin, end in tensors:
        need(begin == at, f"tensor '{name}' begins at {begin}, the one before ends at {at}")
        at = end
    need(at == data_bytes, f"tensors end at {at}, the data section at {data_bytes}")
    return tensors


def split_tensors(tensors):
    """The tensors that hold data, and the leaf table's (begin, end)."""
    by_name = {tensor[0]: tensor for tensor in tensors}
    need(LEAVES in by_name and SEAL in by_name, "no leaf table or no seal among the tensors")
    leaves, seal = by_name[LEAVES], by_name[SEAL]
    need(leaves[1] == "U8" and len(leaves[2]) == 2 and leaves[2][1] == 16, f"'{LEAVES}' is no U8 [n,16]")
    need(seal[1] == "U8" and seal[2] == [SEAL_BYTES], f"'{SEAL}' is no U8 [4096]")
    data = [tensor for tensor in tensors if tensor[0] not in (LEAVES, SEAL)]
    need(tensors[-1] is seal and leaves[4] == seal[3], "leaf table and seal are not last")
    need(all(tensor[4] <= leaves[3] for tensor in data), "a tensor lies behind the leaf table")
    return data, leaves


# ---- plan, section 3 ----

def read_mask_type(obj):
    kind = word(obj, "kind", {"standard", "mori", "deepep", "vllm_aiter"})
    experts = integer(obj, "experts", 1, EXPERTS_MAX)
    local = integer(obj, "local", 0, experts)
    first = integer(obj, "first", 0, experts - local)
    shared = integer(obj, "shared", 0, EXPERTS_MAX if kind == "vllm_aiter" else 0)
    lengths = {"deepep": local + 1, "vllm_aiter": experts + shared + 1}
    return {"experts": experts, "local": local, "first": first, "ep": position(obj, "ep"),
            "length": lengths.get(kind, experts)}


def read_region(obj):
    need(re.fullmatch("0x[0-9a-f]{1,16}", text(obj, "address")), f"'address' is {obj['address']}")
    text(obj, "tag"), text(obj, "device"), member(obj, "managed", bool)
    return {"id": integer(obj, "id", 0, 2**32 - 1), "bytes": integer(obj, "bytes", 1),
            "policy": word(obj, "policy", POLICIES), "unclaimed": word(obj, "unclaimed", POLICIES)}


def read_buffer(obj, regions):
    name, role = text(obj, "name"), word(obj, "role", ROLES)
    dtype, shape = word(obj, "dtype", BITS), integers(obj, "shape", 0)
    size, offset = tensor_bytes(dtype, shape), integer(obj, "offset")
    kept = member(obj, "kept", bool) if "kept" in obj else True
    region = regions.get(integer(obj, "region", 0, 2**32 - 1))
    need(region, f"buffer '{name}': no region {obj['region']}")
    need(offset + size <= region["bytes"], f"buffer '{name}' leaves its region")
    need(kept == (region["policy"] == "keep"), f"buffer '{name}': kept is {kept}, policy {region['policy']}")
    need(("mask" in obj) == (role == "expert_mask"), f"buffer '{name}': role {role} and mask type")
    if role == "expert_mask":
        length = read_mask_type(member(obj, "mask", dict))["length"]
        need(dtype == "I32" and shape == [length], f"buffer '{name}': {dtype} {shape} for a mask of {length}")
    return {"name": name, "role": role, "dtype": dtype, "shape": shape, "bytes": size, "offset": offset,
            "region": region["id"], "kept": kept}


def check_view(obj, buffers):
    name, dtype, offset = text(obj, "name"), word(obj, "dtype", BITS), integer(obj, "offset")
    shape, strides = integers(obj, "shape", 0), integers(obj, "strides", -2**63)
    buffer = buffers.get(text(obj, "buffer"))
    need(buffer, f"view '{name}': no buffer '{obj['buffer']}'")
    need(len(shape) == len(strides), f"view '{name}': {len(strides)} strides for rank {len(shape)}")
    reach = [(d - 1) * s for d, s in zip(shape, strides)]
    below = 8 * offset + BITS[dtype] * sum(r for r in reach if r < 0)
    above = 8 * offset + BITS[dtype] * (1 + sum(r for r in reach if r > 0))
    if 0 in shape:
        below = above = 8 * offset
    need(0 <= below and above <= 8 * buffer["bytes"], f"view '{name}' leaves buffer '{buffer['name']}'")
    return name


def raw_range(name, size, regions):
    """(region, offset) of a raw range, checked against its region."""
    match = re.fullmatch(r"gpusnap\.raw/(0|[1-9][0-9]*)/(0|[1-9][0-9]*)", name)
    need(match, f"tensor '{name}' has a reserved name that version 1 does not define")
    region, offset = regions.get(int(match[1])), int(match[2])
    need(region, f"tensor '{name}': no such region")
    need(region["unclaimed"] == "keep", f"tensor '{name}': unclaimed bytes are {region['unclaimed']}")
    need(size > 0 and offset + size <= region["bytes"], f"tensor '{name}' leaves its region")
    return region["id"], offset


def check_cover(regions, extents):
    """No two extents overlap; regions that keep unclaimed bytes have no gap."""
    by_region = {region: [] for region in regions}
    for region, begin, end, name in extents:
        if end > begin:
            by_region[region].append((begin, end, name))
    for number, region in regions.items():
        at = 0
        for begin, end, name in sorted(by_region[number]):
            need(begin >= at, f"'{name}' overlaps what is before it in region {number}")
            need(begin == at or region["unclaimed"] != "keep", f"region {number}: bytes {at} to {begin} are lost")
            at = end
        need(at == region["bytes"] or region["unclaimed"] != "keep", f"region {number}: bytes from {at} are lost")


# ---- deltas, section 3.5 ----

def leaves_of(size):
    return -(-size // LEAF_BYTES)


def alignment(size):
    return min(size & -size, 4096)


def read_runs(obj, size):
    runs, at = [], 0
    for run in member(obj, "changed", list):
        first, count = integers({"run": run}, "run", 0, 2) if isinstance(run, list) and len(run) == 2 else (0, 0)
        need(count > 0 and first >= at, f"run {run} is none, or begins before {at}")
        need(first + count <= leaves_of(size), f"run {run} leaves its {leaves_of(size)} leaves")
        runs.append((first, count))
        at = first + count
    return runs


def read_entry(obj, regions, buffers):
    """(name, dtype, shape, size, runs of leaves that the file holds)."""
    name, size = text(obj, "name"), integer(obj, "bytes")
    if name.startswith("gpusnap."):
        raw_range(name, size, regions)
        return name, "U8", [size], size, read_runs(obj, size)
    buffer = buffers.get(name)
    need(buffer and buffer["kept"], f"entry '{name}' is no kept buffer of the plan")
    need(size == buffer["bytes"], f"entry '{name}' has {size} bytes, its buffer {buffer['bytes']}")
    return name, buffer["dtype"], buffer["shape"], size, read_runs(obj, size)


def read_delta(delta, tensors, regions, buffers):
    """The hint, the depth, and the entries with (offset in the data section) of what is held."""
    hint, depth = text(delta, "parent"), integer(delta, "depth", 1, 2**32 - 1)
    need("/" not in hint and hint not in (".", ".."), f"'parent' is '{hint}'")
    need(depth <= DEPTH_MAX, f"depth {depth}", "limit")
    listed = member(delta, "entries", list)
    need(len(listed) <= ENTRIES_MAX, f"{len(listed)} entries", "limit")
    entries = [read_entry(obj, regions, buffers) for obj in listed]
    need(sum(len(entry[4]) for entry in entries) <= RUNS_MAX, "too many runs", "limit")
    names = [entry[0] for entry in entries]
    need(len(names) == len(set(names)), "two entries have one name")
    need({n for n, b in buffers.items() if b["kept"]} <= set(names), "a kept buffer is no entry")
    for before, entry in zip(entries, entries[1:]):
        need(alignment(before[3]) >= alignment(entry[3]), f"entry '{entry[0]}' is out of order")
    held = {tensor[0]: tensor for tensor in tensors}
    places = []
    for number, (name, _, _, size, runs) in enumerate(entries):
        last = sum(runs[-1]) == leaves_of(size) if runs else False
        wanted = sum(count for _, count in runs) * LEAF_BYTES - (leaves_of(size) * LEAF_BYTES - size if last else 0)
        tensor = held.pop(f"gpusnap.delta/{number}", None)
        need(bool(tensor) == bool(runs), f"entry '{name}': its changed leaves are no tensor")
        need(not tensor or tensor[1:3] == ("U8", [wanted]), f"entry '{name}': changed leaves of {wanted} bytes")
        places.append(tensor[3] if tensor else 0)
    need(not held, f"tensors {sorted(held)} are no changed leaves")
    return {"hint": hint, "depth": depth, "entries": entries, "places": places}


def check_delta_cover(entries, regions, buffers):
    extents = [(b["region"], b["offset"], b["offset"] + b["bytes"], b["name"]) for b in buffers.values()]
    for name, _, _, size, _ in entries:
        if name.startswith("gpusnap."):
            region, offset = raw_range(name, size, regions)
            extents.append((region, offset, offset + size, name))
    check_cover(regions, extents)


def check_tensors(tensors, regions, buffers):
    """Each tensor is a kept buffer or a raw range, and each kept buffer is there."""
    extents = [(b["region"], b["offset"], b["offset"] + b["bytes"], b["name"]) for b in buffers.values()]
    found = set()
    for name, dtype, shape, begin, end in tensors:
        if name.startswith("gpusnap."):
            need(dtype == "U8" and len(shape) == 1, f"tensor '{name}' is no U8 [n]")
            region, offset = raw_range(name, end - begin, regions)
            extents.append((region, offset, offset + end - begin, name))
            continue
        buffer = buffers.get(name)
        need(buffer and buffer["kept"], f"tensor '{name}' is no kept buffer of the plan")
        need((dtype, shape) == (buffer["dtype"], buffer["shape"]), f"tensor '{name}' differs from its buffer")
        found.add(name)
    for buffer in buffers.values():
        need(not buffer["kept"] or buffer["name"] in found, f"buffer '{buffer['name']}' is not in the file")
    check_cover(regions, extents)


def read_plan(plan, tensors):
    need(integer(plan, "format", 1) == 1, f"plan of format {plan['format']}", "unsupported")
    text(plan, "writer"), position(plan, "tp"), position(plan, "ep"), member(plan, "records", dict)
    need(re.fullmatch("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text(plan, "uuid")), "'uuid'")
    lists = {key: member(plan, key, list) for key in ("regions", "buffers", "views")}
    need(len(lists["regions"]) <= 65536, "too many regions", "limit")
    need(max(len(lists["buffers"]), len(lists["views"])) <= 1048576, "too many buffers or views", "limit")
    regions = [read_region(obj) for obj in lists["regions"]]
    by_id = {region["id"]: region for region in regions}
    need(len(by_id) == len(regions), "two regions have one id")
    read = [read_buffer(obj, by_id) for obj in lists["buffers"]]
    buffers = {buffer["name"]: buffer for buffer in read}
    names = [b["name"] for b in read] + [check_view(obj, buffers) for obj in lists["views"]]
    need(len(names) == len(set(names)), "two buffers or views have one name")
    need(not any(n.startswith("gpusnap.") or n == "__metadata__" for n in names), "a reserved name is taken")
    if "delta" not in plan:
        check_tensors(tensors, by_id, buffers)
        return buffers, None
    delta = read_delta(member(plan, "delta", dict), tensors, by_id, buffers)
    check_delta_cover(delta["entries"], by_id, buffers)
    return buffers, delta


# ---- records, section 6 ----

def check_model_layer(obj, ep):
    text(obj, "module"), integer(obj, "layer", 0, 2**32 - 1), member(obj, "renormalise", bool)
    integer(obj, "hidden", 1, WIDTH_MAX), integer(obj, "intermediate", 1, WIDTH_MAX)
    experts = integer(obj, "experts", 1, EXPERTS_MAX)
    integer(obj, "top_k", 1, experts), word(obj, "score", {"softmax"}), word(obj, "activation", {"silu"})
    block, epsilon = integers(obj, "block", 0), member(obj, "norm_epsilon", (int, float))
    need(len(block) == 2 and (block[0] == 0) == (block[1] == 0) and max(block) <= WIDTH_MAX, f"'block' is {block}")
    mask, (rank, size) = read_mask_type(member(obj, "mask", dict)), ep
    each, longer = divmod(experts, size)
    own = (rank * each + min(rank, longer), each + (rank < longer))
    need((mask["first"], mask["local"]) == own and own[1] > 0, f"mask of {mask}, this rank holds {own}")
    need(mask["experts"] == experts and mask["ep"] == ep, "mask of other experts or of another rank")
    buffers = member(obj, "buffers", dict)
    needed = {"router", "w13", "w2"} | ({"w13_scale", "w2_scale"} if block[0] else set())
    need(needed <= buffers.keys() <= needed | {"mask", "norm"}, f"slots are {sorted(buffers)}")
    need((0 < epsilon or "norm" not in buffers) and 0 <= epsilon <= 1, f"'norm_epsilon' is {epsilon}")
    for slot in buffers:
        text(buffers, slot)


def check_model(model):
    need(integer(model, "format", 1) == 1, f"model of format {model['format']}", "unsupported")
    text(model, "family"), position(model, "tp")
    layers = member(model, "layers", list)
    need(1 <= len(layers) <= 4096, f"{len(layers)} layers")
    for layer in layers:
        check_model_layer(layer, position(model, "ep"))
    numbers = [layer["layer"] for layer in layers]
    need(all(a < b for a, b in zip(numbers, numbers[1:])), f"layers {numbers} do not ascend")


def chain_layer(before, obj):
    control, experts = member(obj, "control", dict), member(obj, "experts", list)
    need(control.keys() <= set(SLOTS), f"slots are {sorted(control)}")
    need(1 <= len(experts) <= EXPERTS_MAX, f"{len(experts)} experts")
    swept = [digest({"experts": value}, "experts") for value in experts]
    tables = [digest(control, slot) if slot in control else bytes(16) for slot in SLOTS]
    counts = [integer(obj, key) for key in ("local_assignments", "remote_assignments")]
    output = digest(obj, "output")
    if not xxhash:
        return None
    return xxh3(before + b"".join(tables) + struct.pack("<I", len(swept)) + xxh3(b"".join(swept))
                + output + struct.pack("<QQ", *counts))


def check_probe(probe):
    need(integer(probe, "version", 1) == 1, f"probe of version {probe['version']}", "unsupported")
    layers, expected = member(probe, "layers", list), digest(probe, "digest")
    need(1 <= len(layers) <= 4096, f"{len(layers)} layers")
    head = struct.pack("<IQIII", 1, integer(probe, "seed"), integer(probe, "tokens", 1, 65536),
                       integer(probe, "steps", 1, 65536), len(layers))
    chain = xxh3(head)
    for layer in layers:
        chain = chain_layer(chain, layer)
    need(chain is None or chain == expected, "probe does not match its digest", "corrupt")


def check_padding(entries):
    need(isinstance(entries, list), "'padding' is no list")
    for entry in entries:
        text(entry, "buffer"), integer(entry, "axis", 0, 7)
        need(integer(entry, "from") < integer(entry, "to"), f"padding of {entry}")


def check_records(records):
    if "padding" in records:
        check_padding(records["padding"])
    if "model" in records:
        check_model(records["model"])
    if "probe" in records:
        check_probe(records["probe"])


# ---- one file: checks 1 to 14 of section 5.1 ----

class File:
    """A file whose structure is right: entries (name, dtype, shape, size, runs), leaf table, places."""

    def __init__(self, path):
        self.path = path
        self.stream = open(path, "rb")
        self.identity = os.fstat(self.stream.fileno())[1:3]
        file_bytes = os.fstat(self.stream.fileno()).st_size
        need(file_bytes >= SEAL_BYTES, f"not a snapshot: {file_bytes} bytes")
        self.stream.seek(file_bytes - SEAL_BYTES)
        self.seal = seal = read_seal(self.stream.read(SEAL_BYTES), file_bytes)
        self.stream.seek(0)
        need(seal["data"] - 8 <= HEADER_MAX, f"header of {seal['data']} bytes")
        head = self.stream.read(seal["data"])
        need_digest(head, seal["header"], "header")
        need(struct.unpack_from("<Q", head)[0] == seal["data"] - 8, "header length and data offset disagree")
        need(head[8:9] == b"{", "header does not begin with '{'")
        header = parse_json(head[8:], "header")
        tensors, leaves = split_tensors(read_tensors(header, file_bytes - seal["data"]))
        self.plan = parse_json(text_of_plan(header), "plan")
        self.buffers, delta = read_plan(self.plan, tensors)
        need(self.plan["uuid"].lower() == seal["uuid"], f"plan of {self.plan['uuid']}, seal of {seal['uuid']}")
        need(bool(delta) == bool(seal["parent"]), "plan and seal disagree whether this is a delta")
        self.hint, self.depth = (delta["hint"], delta["depth"]) if delta else (None, 0)
        self.entries = delta["entries"] if delta else [
            (name, dtype, shape, end - begin, [(0, leaves_of(end - begin))]) for name, dtype, shape, begin, end in tensors]
        places = delta["places"] if delta else [tensor[3] for tensor in tensors]
        self.places = {entry[0]: (seal["data"] + place, entry[4]) for entry, place in zip(self.entries, places)}
        self.read_leaves(leaves)

    def read_leaves(self, leaves):
        seal, count = self.seal, sum(leaves_of(entry[3]) for entry in self.entries)
        need(leaves[2][0] == seal["leaf_count"] == count, f"{leaves[2][0]} digests for {count} leaves")
        self.stream.seek(seal["data"] + leaves[3])
        table = self.stream.read(16 * count)
        need_digest(table, seal["leaves"], "leaf table")
        self.tables, at = {}, 0
        for name, _, _, size, _ in self.entries:
            self.tables[name] = table[at:at + 16 * leaves_of(size)]
            at += 16 * leaves_of(size)

    def offset_of(self, name, leaf):
        """Where the file holds a leaf; None when it does not."""
        offset, runs = self.places[name]
        for first, count in runs:
            if first <= leaf < first + count:
                return offset + (leaf - first) * LEAF_BYTES
            offset += count * LEAF_BYTES
        return None


# ---- chains, section 3.5 ----

def check_link(child, parent):
    need(parent.depth == child.depth - 1, f"depth {child.depth}, its parent's is {parent.depth}")
    types = {name: (dtype, shape, size) for name, dtype, shape, size, _ in parent.entries}
    need(len(types) == len(child.entries), "child and parent have other entries")
    for name, dtype, shape, size, _ in child.entries:
        need(types.get(name) == (dtype, shape, size), f"entry '{name}' is another in the parent")
        for leaf in range(leaves_of(size)):
            at = slice(16 * leaf, 16 * leaf + 16)
            need(child.offset_of(name, leaf) is not None or child.tables[name][at] == parent.tables[name][at],
                 f"'{name}', leaf {leaf}: the parent has another", "corrupt")


def open_chain(path):
    chain = [File(path)]
    while chain[-1].seal["parent"]:
        child = chain[-1]
        beside = os.path.join(os.path.dirname(child.path), child.hint)
        need(os.path.exists(beside), f"no file '{beside}'", "missing")
        parent = File(beside)
        need(parent.identity not in [link.identity for link in chain], f"'{beside}' is in its own chain")
        need(parent.seal["root"] == child.seal["parent"], f"'{beside}' is not the parent", "mismatch")
        check_link(child, parent)
        chain.append(parent)
    return chain


# ---- data, section 4 ----

def check_data(chain):
    """Every leaf of the state against the table. Yields (entry, buffer digest)."""
    for entry in chain[0].entries:
        name, size, table = entry[0], entry[3], chain[0].tables[entry[0]]
        for leaf in range(leaves_of(size)):
            link = next(link for link in chain if link.offset_of(name, leaf) is not None)
            offset = link.offset_of(name, leaf)
            link.stream.seek(offset)
            data = link.stream.read(min(LEAF_BYTES, size - leaf * LEAF_BYTES))
            need_digest(data, table[16 * leaf:16 * leaf + 16],
                        f"'{name}', leaf {leaf}, offset {offset} of '{link.path}'")
        yield entry, xxh3(struct.pack("<Q", size) + table)


def read_file(path, show):
    chain = open_chain(path)
    top = chain[0]
    check_records(top.plan["records"])
    for (name, dtype, shape, size, _), found in check_data(chain):
        role = top.buffers[name]["role"] if name in top.buffers else "unclaimed"
        show(f"{found.hex() if found else '-' * 32} {size:>12} {role:<11} {dtype}{shape} {name}")
    for parent in chain[1:]:
        show(f"{parent.seal['root'].hex()} {parent.seal['file']:>12} parent      {parent.path}")
    show(f"{top.seal['root'].hex()} {top.seal['file']:>12} root")


def text_of_plan(header):
    metadata = member(header, "__metadata__", dict)
    return member(metadata, "gpusnap", str)


def main():
    parser = argparse.ArgumentParser(description="check gsnap files, independently of gpusnap")
    parser.add_argument("--quiet", action="store_true", help="print faults only")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = parser.parse_args()
    if not xxhash:
        print("gsnap_reader: no module xxhash: digests are not checked", file=sys.stderr)
    failed = False
    for path in options.files:
        try:
            read_file(path, (lambda line: None) if options.quiet else print)
        except (Fault, OSError) as fault:
            print(f"{path}: {fault}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
