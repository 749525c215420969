#!/usr/bin/env bash
# The code objects for AMD GPUs: every kernel is there for every architecture, within its limits of
# registers, and calls nothing. Prints a table of what each kernel takes.
#
# Usage: tests/device/hip_code.sh BUILD
#
# BUILD/kernels holds a code object and the compiler's remarks for each architecture. A column is
# VGPRs + AGPRs / SGPRs / bytes of LDS / spilled VGPRs.
set -euo pipefail
folder=${1:?folder of the build}/kernels
most_registers=256 # of a lane, with two waves on each SIMD
most_spilled=64
shopt -s nullglob
objects=("$folder"/gpu_kernels.*.co)
[ ${#objects[@]} -gt 0 ] || {
	echo "there are no code objects in $folder: skipped"
	exit 77
}
table=$(mktemp -d)
trap 'rm -rf "$table"' EXIT
failed=0

# remarks FILE: a line for each kernel: name, VGPRs, AGPRs, SGPRs, LDS, spilled VGPRs.
remarks()
{
	sed -n 's/.*remark: *\(.*\) \[-Rpass-analysis=kernel-resource-usage\]/\1/p' "$1" |
		sed 's/.*remark: *//; s/^ *//; s/TotalSGPRs/SGPRs/' |
		awk '
			function flush() { if (name) print name, v, a, s, lds, spill }
			/^Function Name:/ { flush(); name = $3 }
			/^VGPRs:/ { v = $2 }
			/^AGPRs:/ { a = $2 }
			/^SGPRs:/ { s = $2 }
			/^LDS Size/ { lds = $NF }
			/^VGPRs Spill:/ { spill = $3 }
			END { flush() }' | c++filt |
		sed 's/^void //; s/([^)]*)//g; s/, /,/g; s/unsigned char/uint8_t/g' | sort
}

for object in "${objects[@]}"; do
	architecture=${object#"$folder"/gpu_kernels.}
	architecture=${architecture%.co}
	remarks "$object.txt" >"$table/$architecture"
	while read -r name v a _ _ spill; do
		[ $((v + a)) -le $most_registers ] && [ "$spill" -le $most_spilled ] && continue
		echo "$architecture: $name takes $((v + a)) registers and spills $spill;" \
			"at most $most_registers and $most_spilled"
		failed=1
	done <"$table/$architecture"
	undefined=$(nm -D --undefined-only "$object" 2>/dev/null || true)
	[ -z "$undefined" ] || {
		echo "$architecture calls what no device library has: $undefined"
		failed=1
	}
done

cd "$table"
names=(*)
for name in "${names[@]}"; do
	diff <(cut -d' ' -f1 "${names[0]}") <(cut -d' ' -f1 "$name") >/dev/null || {
		echo "$name has other kernels than ${names[0]}"
		failed=1
	}
done
[ "$(wc -l <"${names[0]}")" -ge 40 ] || {
	echo "only $(wc -l <"${names[0]}") kernels: are these the remarks of the compiler?"
	failed=1
}
printf '| kernel |'
printf ' %s |' "${names[@]}"
printf '\n|---|'
printf -- '---|%.0s' "${names[@]}"
echo
while read -r kernel; do
	printf '| %s |' "\`${kernel#gsn_}\`"
	for name in "${names[@]}"; do
		awk -v k="$kernel" '$1 == k { printf " %d+%d/%d/%d/%d |", $2, $3, $4, $5, $6 }' "$name"
	done
	echo
done < <(cut -d' ' -f1 "${names[0]}")
exit $failed
