#!/usr/bin/env python3
"""What the PyTorch stack reaches on the same machine: files of a state on a GPU, MoE decode.

    peers.py FOLDER [GIB]

Files: safetensors and torch.save of GIB GiB (default 8) of BF16 tensors on the GPU, cold and warm.
Decode: one Triton grouped kernel for gate and up, one for down, tokens sorted beforehand and not
timed, weights of 48 layers in turn, a captured graph. Prints one line a measurement.
"""
import os
import statistics
import sys
import time

import torch
import triton
import triton.language as tl
from safetensors import safe_open
from safetensors.torch import load_file, save_file

TENSORS = 32
LAYERS = 48
TOKENS = (1, 2, 4, 8, 16, 32, 64)


def timed(function):
    torch.cuda.synchronize()
    begun = time.monotonic()
    result = function()
    torch.cuda.synchronize()
    return time.monotonic() - begun, result


def show(what, bytes_moved, seconds):
    print(f"{what}: {bytes_moved / seconds / 1e9:.2f} GB/s", flush=True)


def drop_from_cache(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def written(function, path):
    function(path)
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


def slices_of(path, rank, ranks):
    with safe_open(path, framework="pt", device="cuda:0") as file:
        return [file.get_slice(name)[:, rank * 4096 // ranks:(rank + 1) * 4096 // ranks]
                for name in file.keys()]


def measure_files(folder, gib):
    path = os.path.join(folder, "peers.safetensors")
    pickled = os.path.join(folder, "peers.pt")
    rows = gib * 2**30 // TENSORS // 2 // 4096
    state = {f"t{i}": torch.randint(-2**15, 2**15, (rows, 4096), dtype=torch.int16,
                                    device="cuda").view(torch.bfloat16) for i in range(TENSORS)}
    total = sum(t.numel() * t.element_size() for t in state.values())
    show("safetensors save_file, on disk", total, timed(
        lambda: written(lambda p: save_file(state, p), path))[0])
    show("torch.save, on disk", total, timed(
        lambda: written(lambda p: torch.save(state, p), pickled))[0])
    del state
    os.unlink(pickled)
    drop_from_cache(path)
    for name in ("cold", "warm", "warm again"):
        seconds, loaded = timed(lambda: load_file(path, device="cuda:0"))
        show(f"safetensors load_file to the GPU ({name})", total, seconds)
        del loaded
    seconds, loaded = timed(lambda: slices_of(path, 3, 8))
    show("safetensors slices of columns, rank 3 of 8, warm, bytes of the slices", total / 8, seconds)
    os.unlink(path)


@triton.jit
def grouped(x, w, scale, pairs, expert_of, y, rows, columns, top_k, HALF: tl.constexpr,
            FP8: tl.constexpr, GATED: tl.constexpr, SPREAD: tl.constexpr, BM: tl.constexpr,
            BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0)
    expert = tl.load(expert_of + tile).to(tl.int64)
    pair = tl.load(pairs + tile * BM + tl.arange(0, BM))
    there = pair >= 0
    row = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    source = tl.where(there, pair // SPREAD if SPREAD > 1 else pair, 0)
    at = w + expert * rows * columns + row[:, None] * columns
    first = tl.zeros((BM, BN), tl.float32)
    second = tl.zeros((BM, BN), tl.float32)
    for base in range(0, columns, BK):
        v = tl.load(x + source[:, None] * columns + base + k[None, :], mask=there[:, None], other=0.0)
        one = tl.load(at + base + k[None, :]).to(tl.bfloat16)
        part = tl.dot(v, tl.trans(one))
        if FP8:
            part *= tl.load(scale + expert)
        first += part
        if GATED:
            other = tl.load(at + HALF * columns + base + k[None, :]).to(tl.bfloat16)
            part = tl.dot(v, tl.trans(other))
            if FP8:
                part *= tl.load(scale + expert)
            second += part
    if GATED:
        first = first * tl.sigmoid(first) * second
        rows = HALF
    tl.store(y + tl.where(there, pair, 0)[:, None] * rows + row[None, :],
             first.to(tl.bfloat16), mask=there[:, None])


def block(columns):
    return 128 if columns % 128 == 0 else 64


class Layers:
    """Weights of LAYERS layers, and the grouped kernels over them."""

    def __init__(self, hidden, inner, experts, top_k, fp8):
        self.hidden, self.inner, self.experts, self.top_k, self.fp8 = hidden, inner, experts, top_k, fp8
        kind = torch.float8_e4m3fn if fp8 else torch.bfloat16
        make = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16).mul_(0.05).to(kind)
        self.w13 = [make(experts, 2 * inner, hidden) for _ in range(LAYERS)]
        self.w2 = [make(experts, hidden, inner) for _ in range(LAYERS)]
        self.scale = torch.full((experts,), 0.01, device="cuda")

    def plan(self, tokens):
        """Tiles of 16 pairs of one expert each, and the bytes of the experts that are used."""
        ids = torch.rand(tokens, self.experts).topk(self.top_k).indices.flatten()
        tiles, owners = [], []
        for expert in ids.unique().tolist():
            mine = (ids == expert).nonzero().flatten().tolist()
            for at in range(0, len(mine), 16):
                part = mine[at:at + 16]
                tiles.append(part + [-1] * (16 - len(part)))
                owners.append(expert)
        bytes_each = 3 * self.hidden * self.inner * (1 if self.fp8 else 2)
        return (torch.tensor(tiles, dtype=torch.int32, device="cuda"),
                torch.tensor(owners, dtype=torch.int32, device="cuda"),
                len(ids.unique()) * bytes_each)

    def step(self, layer, x, h, y, tiles, owners):
        common = dict(FP8=self.fp8, BM=16, BN=64, num_warps=4, num_stages=4)
        grouped[(len(owners), self.inner // 64)](
            x, self.w13[layer], self.scale, tiles, owners, h, 2 * self.inner, self.hidden, self.top_k,
            HALF=self.inner, GATED=True, SPREAD=self.top_k, BK=block(self.hidden), **common)
        grouped[(len(owners), self.hidden // 64)](
            h, self.w2[layer], self.scale, tiles, owners, y, self.hidden, self.inner, self.top_k,
            HALF=0, GATED=False, SPREAD=1, BK=block(self.inner), **common)


def measure_decode(name, layers, copy_rate):
    for tokens in TOKENS:
        x = torch.randn(tokens, layers.hidden, device="cuda", dtype=torch.bfloat16)
        h = torch.empty(tokens * layers.top_k, layers.inner, device="cuda", dtype=torch.bfloat16)
        y = torch.empty(tokens * layers.top_k, layers.hidden, device="cuda", dtype=torch.bfloat16)
        plans = [layers.plan(tokens) for _ in range(LAYERS)]
        layers.step(0, x, h, y, *plans[0][:2])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for layer in range(LAYERS):
                layers.step(layer, x, h, y, *plans[layer][:2])
        times = []
        for _ in range(9):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / LAYERS)
        micro = statistics.median(times[1:])
        moved = statistics.mean(plan[2] for plan in plans)
        print(f"Triton grouped {name} batch {tokens:2}: {moved / 1e6:7.1f} MB, experts {micro:6.1f} us = "
              f"{moved / micro / 1e6 / copy_rate * 100:4.1f} %", flush=True)


def copy_rate():
    """TB/s of a device copy, read and written."""
    a = torch.empty(2**32, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    best = 1e9
    for _ in range(5):
        best = min(best, timed(lambda: b.copy_(a))[0])
    return 2 * a.numel() / best / 1e12


def main():
    folder, gib = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8
    print(f"torch {torch.__version__}, triton {triton.__version__}")
    measure_files(folder, gib)
    rate = copy_rate()
    torch.cuda.empty_cache()
    for name, sizes in (("Qwen3-30B-A3B", (2048, 768, 128, 8)), ("gpt-oss-20b", (2880, 2880, 32, 4))):
        for fp8 in (True, False):
            measure_decode(f"{name} {'FP8' if fp8 else 'BF16'}", Layers(*sizes, fp8), rate)
            torch.cuda.empty_cache()


main()
