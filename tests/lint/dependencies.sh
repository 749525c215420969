#!/usr/bin/env bash
# The dependency law: tools > dispatch > loader > snapshot > kernels > formats, never back; and
# third-party headers only where they belong.
set -euo pipefail
cd "${GPUSNAP_SOURCE:?source tree}"
modules=(formats kernels snapshot loader dispatch tools)
failed=0

complain()
{
	echo "$1"
	failed=1
}

rank_of()
{
	local i
	for i in "${!modules[@]}"; do
		[ "${modules[$i]}" = "$1" ] && echo "$i" && return
	done
	echo 99
}

# Module that an #include names: "kernels/pool.h", or <gpusnap/device.h> by where it lives.
module_of_include()
{
	case "$1" in
	gpusnap/*)
		local header
		header=$(ls -d ./*/include/"$1" 2>/dev/null || true)
		header=${header#./}
		echo "${header%%/*}"
		;;
	*/*) echo "${1%%/*}" ;;
	esac
}

check_file()
{
	local file=$1 own target include
	own=$(rank_of "${file%%/*}")
	while read -r include; do
		target=$(module_of_include "$include")
		[ -n "$target" ] || continue
		[ "$(rank_of "$target")" -ne 99 ] || continue
		[ "$(rank_of "$target")" -le "$own" ] ||
			complain "$file includes $include: ${file%%/*} may not depend on $target"
	done < <(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]\([^>"]*\)[>"].*/\1/p' "$file")
}

# only_in HEADER_PATTERN ALLOWED_PATH_PATTERN: a third-party header outside its place.
only_in()
{
	local hit
	while read -r hit; do
		complain "$hit: only $2 may include $1"
	done < <(grep -REl "#[[:space:]]*include[[:space:]]*<($1)" "${modules[@]}" --include='*.c' --include='*.h' |
		grep -vE "^($2)" || true)
}

while read -r file; do
	check_file "$file"
done < <(find "${modules[@]}" -name '*.[ch]')
only_in 'jansson\.h' 'formats/'
only_in 'xxhash\.h|xxh_x86dispatch\.h' 'formats/'
# The command's benchmark holds it against a plain program, which is not to use its ring.
only_in 'liburing\.h' 'snapshot/ring_uring\.c|tools/ceiling_file\.c'
only_in 'cuda[a-z_]*\.h|hip/' 'kernels/'

repeated=$(find "${modules[@]}" tests -name '*.[ch]' -printf '%f\n' | sort | uniq -d)
[ -z "$repeated" ] || complain "base names used more than once: $repeated"

for entry in $(git ls-files 2>/dev/null | cut -d/ -f1 | sort -u); do
	case "$entry" in
	.* | CMakeLists.txt | CMakePresets.json | README.md | tests) ;;
	*) [ "$(rank_of "$entry")" -ne 99 ] || complain "the top level is fixed, '$entry' is not in it" ;;
	esac
done
exit $failed
