#!/usr/bin/env bash
# What is installed is enough: a C and a C++ program build against it by pkg-config alone and run,
# and so does the installed command. $1: build folder.
set -euo pipefail
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$1" --prefix "$prefix" >/dev/null
library=$(dirname "$(find "$prefix" -name libgpusnap.so)")
# The file was made for the default prefix.
sed -i "s|^prefix=.*|prefix=$prefix|" "$library/pkgconfig/gpusnap.pc"
export PKG_CONFIG_PATH=$library/pkgconfig LD_LIBRARY_PATH=$library
read -ra flags < <(pkg-config --cflags --libs gpusnap)
source=$GPUSNAP_SOURCE/tests/compat/installed.c
gcc -std=c17 -Wall -Wextra -Wpedantic -Werror "$source" "${flags[@]}" -o "$prefix/c_program"
"$prefix/c_program"
if command -v g++ >/dev/null; then
	g++ -std=c++20 -Wall -Wextra -Werror -Wno-missing-field-initializers -x c++ "$source" "${flags[@]}" -o "$prefix/cc_program"
	"$prefix/cc_program"
fi

# The example finds the mask that it lost, by name.
gcc -std=c17 -Wall -Wextra -Wpedantic -Werror "$GPUSNAP_SOURCE/tools/examples/own_buffers.c" "${flags[@]}" -o "$prefix/own_buffers"
"$prefix/own_buffers" >"$prefix/said"
diff - "$prefix/said" <<'END'
decoded 2 tokens: 2 pairs here, 2 elsewhere
proved
broken: layer 0, mask: standard mask: all 8 values are zero, expected 4 ones from index 4: the mask was not restored
NOT proved
END
"$prefix/bin/gpusnap" --version
"$prefix/bin/gpusnap" doctor "$prefix" >/dev/null
