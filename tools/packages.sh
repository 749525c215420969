# Sourced by quickstart and test: installs what is missing, and says what.
# shellcheck shell=bash

BUILD_PACKAGES=(cmake ninja-build gcc libc6-dev pkg-config liburing-dev libxxhash-dev libjansson-dev)
# The HIP module and the tests on a stand-in for its runtime: 160 MB to fetch, 850 MB on the disk,
# 90 seconds on two cores.
HIP_PACKAGES=(hipcc libamdhip64-dev clang-22 lld-22)
TEST_PACKAGES=(check clang-format clang-tidy shellcheck python3-venv e2fsprogs util-linux xfsprogs)
FUZZ_PACKAGES=(clang libclang-rt-dev)

# missing_packages NAME...: those of them that are not installed, on one line.
missing_packages()
{
	local missing=() name
	for name in "$@"; do
		dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' ||
			missing+=("$name")
	done
	echo "${missing[*]}"
}

# install_packages NAME...: as root or through sudo; nothing is done when all are there.
install_packages()
{
	local missing as_root=()
	read -ra missing < <(missing_packages "$@")
	[ ${#missing[@]} -eq 0 ] && return
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || {
			echo "missing packages: ${missing[*]}; run as root, or install sudo" >&2
			return 1
		}
		as_root=(sudo)
	fi
	echo "installing packages: ${missing[*]}"
	"${as_root[@]}" apt-get update -qq
	DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq \
		--no-install-recommends "${missing[@]}" >/dev/null
}

# configure_and_build PRESET [TARGET]: quiet when nothing is to be done.
configure_and_build()
{
	[ -f "build/$1/build.ninja" ] || cmake --preset "$1" >/dev/null
	cmake --build --preset "$1" ${2:+--target "$2"} -- --quiet
}
