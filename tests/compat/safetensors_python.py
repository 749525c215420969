#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our safetensors files against the official Python library, both ways.

The library lives in a virtual environment in the build folder, made on the first run and kept.
Exit status 77 (a skip) where it cannot be installed.
"""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

PACKAGES = ["safetensors==0.8.0", "numpy==2.2.6", "xxhash==3.5.0"]
SKIP = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


def enter_environment(folder):
    """Run this script again by the interpreter of the environment, made if it is not there."""
    python = pathlib.Path(folder) / "bin" / "python"
    stamp = pathlib.Path(folder) / "packages.txt"
    if pathlib.Path(sys.prefix).resolve() == pathlib.Path(folder).resolve():
        return
    if not stamp.exists() or stamp.read_text().split() != PACKAGES:
        for command in ([sys.executable, "-m", "venv", "--clear", folder],
                        [str(python), "-m", "pip", "install", "--quiet",
                         "--disable-pip-version-check", *PACKAGES]):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            except (OSError, subprocess.TimeoutExpired) as error:
                skip(f"{' '.join(command)}: {error}")
            if done.returncode:
                skip(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
        stamp.write_text("\n".join(PACKAGES))
    os.execv(python, [str(python), *sys.argv])


def digest(data):
    """XXH3-128 in hexadecimal, by a third implementation."""
    import xxhash
    return xxhash.xxh3_128_hexdigest(bytes(data))


def official(path):
    """Tensors by the official reader as {name: (dtype, shape, digest)}; None when it refuses."""
    import safetensors
    try:
        tensors = safetensors.deserialize(pathlib.Path(path).read_bytes())
    except safetensors.SafetensorError:
        return None
    return {name: (tensor["dtype"], list(tensor["shape"]), digest(tensor["data"]))
            for name, tensor in tensors}


def ours(reader, paths):
    """What our reader prints for each of the files."""
    answers = []
    for at in range(0, len(paths), 500):
        some = map(str, paths[at:at + 500])
        done = subprocess.run([reader, *some], capture_output=True, check=True)
        answers += [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(paths), (len(answers), len(paths))
    return answers


def as_table(tensors):
    """Our JSON in the form of official(); dimensions over 2^63 were printed as negative numbers."""
    table = {tensor["name"]: (tensor["dtype"], [dim % 2**64 for dim in tensor["shape"]],
                              tensor["digest"]) for tensor in tensors}
    assert len(table) == len(tensors), "a name repeats"
    return table


def check_equal(path, expected, found):
    assert found is not None, f"{path} is refused"
    assert found.keys() == expected.keys(), (path, expected.keys() ^ found.keys())
    for name in expected:
        assert found[name] == expected[name], (path, name, expected[name], found[name])


def check_numpy(path, expected):
    """Every tensor of a dtype that NumPy has, loaded by the library's NumPy front end."""
    import safetensors
    from safetensors.numpy import _TYPES
    with safetensors.safe_open(path, framework="numpy") as file:
        names = [name for name in file.keys() if expected[name][0] in _TYPES]
        assert {expected[name][0] for name in names} == set(_TYPES), "a NumPy dtype is not covered"
        for name in names:
            array = file.get_tensor(name)
            dtype, shape, wanted = expected[name]
            assert array.dtype == _TYPES[dtype], (name, array.dtype, dtype)
            assert list(array.shape) == shape, (name, array.shape, shape)
            assert digest(array.tobytes()) == wanted, name


def check_metadata(path, expected):
    import safetensors
    with safetensors.safe_open(path, framework="numpy") as file:
        assert file.metadata() == expected, (file.metadata(), expected)


def test_our_file_opens_in_python(writer, folder):
    path = folder / "ours.safetensors"
    done = subprocess.run([writer, str(path)], capture_output=True, check=True)
    expected = as_table(json.loads(done.stdout))
    check_equal(path, expected, official(path))
    check_numpy(path, expected)
    check_metadata(path, {"format": "np", "\u20ac": "\"\\\n"})
    return len(expected)


def test_python_files_open_in_ours(reader, folder):
    import numpy
    from safetensors.numpy import _TYPES, save_file
    rng = numpy.random.default_rng(5)
    files = []
    for number in range(20):
        arrays = {}
        for dtype in _TYPES.values():
            shape = rng.integers(0, 6, rng.integers(0, 4))
            arrays[f"{numpy.dtype(dtype)}.\u20ac.\"{rng.integers(1000)}"] = \
                rng.integers(0, 2, shape).astype(dtype) if dtype is bool else \
                rng.integers(0, 100, shape).astype(dtype)
        files.append((folder / f"python{number}.safetensors", arrays))
        save_file(arrays, files[-1][0], metadata={"number": str(number)} if number else None)
    for (path, arrays), answer in zip(files, ours(reader, [path for path, _ in files])):
        assert "error" not in answer, (path, answer)
        found = as_table(answer["tensors"])
        check_equal(path, official(path), found)
        names = {value: key for key, value in _TYPES.items()}
        names[numpy.dtype(bool).type] = "BOOL"
        for name, array in arrays.items():
            assert found[name] == (names[array.dtype.type], list(array.shape),
                                   digest(array.tobytes())), name
    return len(files)


# Reasons for which we refuse what the official reader accepts; safetensors.h lists them.
STRICTER = ("twice", "more than 64 dimensions", "expected an object with dtype")


def compare_verdicts(reader, paths):
    """We accept nothing that the official reader refuses, and read the same where both accept."""
    both = 0
    for path, answer in zip(paths, ours(reader, paths)):
        theirs = official(path)
        if "error" in answer:
            assert theirs is None or any(why in answer["error"] for why in STRICTER), \
                (path.read_bytes()[:400], answer["error"])
        else:
            assert theirs is not None, f"only ours accepts {path.read_bytes()[:400]!r}"
            check_equal(path, theirs, as_table(answer["tensors"]))
            both += 1
    return both


def test_odd_files_get_the_same_verdict(reader, data):
    paths = sorted(pathlib.Path(data).glob("*.safetensors"))
    assert len(paths) > 60
    return compare_verdicts(reader, paths)


SEED_HEADERS = [
    '{"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}',
    '{"__metadata__":{"k":"v","\\u20ac":""},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
    '{"b":{"data_offsets":[4,8],"shape":[2,2],"dtype":"I8"},'
    '"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4],"x":[1.5e3,null,{"y":-0}]}}',
    '{"z":{"dtype":"F64","shape":[0],"data_offsets":[8,8]},'
    '"a":{"dtype":"F4","shape":[16],"data_offsets":[0,8]}}',
]
TOKENS = list('{}[]:,"\\ \n\t\r-+.eE0123456789') + [
    '"a"', '"dtype"', '"shape"', '"data_offsets"', '"__metadata__"', 'null', 'true', '1.0', '-0',
    '0e1', '1e400', '-1', '18446744073709551615', '18446744073709551616', '9' * 400, '[]', '{}',
    '"\\u0000"', '\\u0000', '\\ud83d\\ude00', '\\ud83d', '\u20ac', '\x7f', '\x01', '\ufeff',
    '"F6_E2M3"', '"f32"', '"C64"']


def mutate(rng, header):
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(header) + 1)
        end = min(len(header), at + rng.choice((0, 0, 1, 1, 2, 5, 12)))
        other = rng.randrange(len(header) + 1)
        piece = rng.choice((rng.choice(TOKENS), "", header[other:other + rng.randrange(20)]))
        header = header[:at] + piece + header[end:]
    return header


def test_mutated_headers_get_the_same_verdict(reader, folder, count=6000):
    seed = int(os.environ.get("GPUSNAP_SEED", "8"))
    rng = random.Random(seed)
    paths = []
    for number in range(count):
        header = mutate(rng, rng.choice(SEED_HEADERS)).encode()
        paths.append(folder / f"mutated{number}.safetensors")
        paths[-1].write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(8)))
    both = compare_verdicts(reader, paths)
    assert both > count // 50, f"only {both} of {count} mutations are valid files: none is tested"
    return both


def command_json(command, *arguments):
    done = subprocess.run([command, *map(str, arguments), "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)


def test_snapshot_opens_in_python(command, checkpoint, folder):
    """Names, dtypes and shapes as the plan has them; plain tensors with the checkpoint's bytes."""
    path = folder / "snapshot.gsnap"
    command_json(command, "load", checkpoint, path, "--record")
    found = official(path)
    assert found is not None, "the official reader refuses a snapshot"
    seal, leaves = found.pop("gpusnap.seal"), found.pop("gpusnap.leaves")
    assert seal[:2] == ("U8", [4096]) and leaves[0] == "U8" and leaves[1][1] == 16, (seal, leaves)
    listed = {b["name"]: (b["dtype"], b["shape"]) for b in command_json(command, "ls", path)["buffers"]}
    assert {name: value[:2] for name, value in found.items()} == listed
    source = {}
    for shard in sorted(pathlib.Path(checkpoint).glob("model-*.safetensors")):
        source.update(official(shard))
    plain = source.keys() & found.keys()
    assert len(plain) > 10, plain
    for name in plain:
        assert found[name] == source[name], name
    reader = pathlib.Path(__file__).with_name("gsnap_reader.py")
    subprocess.run([sys.executable, str(reader), "--quiet", str(path)], check=True)
    return len(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", required=True, help="folder of the virtual environment")
    parser.add_argument("--writer", required=True, help="the program write_sample")
    parser.add_argument("--reader", required=True, help="the program read_sample")
    parser.add_argument("--data", required=True, help="folder of odd safetensors files")
    parser.add_argument("--command", required=True, help="the command gpusnap")
    parser.add_argument("--checkpoint", required=True, help="a checkpoint folder")
    options = parser.parse_args()
    enter_environment(options.environment)
    with tempfile.TemporaryDirectory(prefix="gpusnap-test-") as name:
        folder = pathlib.Path(name)
        print("tensors of ours that Python reads:",
              test_our_file_opens_in_python(options.writer, folder))
        print("files of Python's that ours reads:",
              test_python_files_open_in_ours(options.reader, folder))
        print("odd files that both accept:",
              test_odd_files_get_the_same_verdict(options.reader, options.data))
        print("tensors of a snapshot that Python reads:",
              test_snapshot_opens_in_python(options.command, options.checkpoint, folder))
        print("mutated files that both accept:",
              test_mutated_headers_get_the_same_verdict(options.reader, folder))


if __name__ == "__main__":
    main()
