#!/usr/bin/env python3
"""The slices of a tensor-parallel rank of 8 through the Python safetensors library, into host memory.

    python3 -m venv VENV && VENV/bin/pip install safetensors numpy ml_dtypes
    VENV/bin/python bench_safetensors.py DIR RANK

DIR is what make_views wrote; bench_load measures the same with gpusnap.
"""
import glob
import resource
import sys
import time

import ml_dtypes
import numpy
from safetensors import safe_open

TP = 8


def part(file, name, rank):
    if ".experts." not in name:
        return file.get_tensor(name)
    view = file.get_slice(name)
    rows, columns = view.get_shape()
    if "down_proj" in name:
        return view[:, rank * columns // TP:(rank + 1) * columns // TP]
    return view[rank * rows // TP:(rank + 1) * rows // TP]


def main():
    directory, rank = sys.argv[1], int(sys.argv[2])
    numpy.float8_e4m3fn = ml_dtypes.float8_e4m3fn  # by which name the library asks for it
    start = time.monotonic()
    kept = []  # a load that drops what it loaded would use the same memory again and again
    for path in sorted(glob.glob(directory + "/*.safetensors")):
        with safe_open(path, framework="np") as file:
            for name in file.keys():
                kept.append(part(file, name, rank))
    seconds = time.monotonic() - start
    total = sum(array.nbytes for array in kept)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(f"rank {rank}: {len(kept)} slices, {total / 2**20:.0f} MiB in {seconds:.3f} s, "
          f"{usage.ru_utime + usage.ru_stime:.3f} cpu s")


main()
