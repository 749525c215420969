#!/usr/bin/env bash
# Help goes to standard output, fits 80 columns and says nothing on standard error; a wrong
# option is an error on standard error; every command and option is in the manual.
# shellcheck source=tests/cli/lib.sh
. "${GPUSNAP_SOURCE:?source tree}/tests/cli/lib.sh"
manual=$GPUSNAP_SOURCE/tools/man/gpusnap.1

check_help()
{
	expect 0 "$@"
	[ -z "$err" ] || fail "$*: $err"
	[ -n "$out" ] || fail "$*: no help"
	! grep -E '^.{81}' <<<"$out" || fail "$*: a line over 80 columns"
}

check_help --help
commands=$(sed -n 's/^  \([a-z]\{1,\}\) .*/\1/p' <<<"$out")
[ "$(wc -l <<<"$commands")" -eq 17 ] || fail "commands: $commands"
for command in $commands; do
	check_help "$command" --help
	grep -qE "\\.It Nm Cm $command|Cm $command " "$manual" || fail "$command is not in the manual"
	while read -r option; do
		case $option in --help | --usage | --version) continue ;; esac
		grep -qF -- "Fl ${option#-}" "$manual" || fail "$command $option is not in the manual"
	done < <(grep -oE -- '--[a-z-]+' <<<"$out" | sort -u)
	expect 2 "$command" --no-such-option
	[ -z "$out" ] || fail "$command: $out"
	contains "$err" "no-such-option"
done
expect 2
[ -z "$out" ] || fail "usage on standard output"
expect 2 saev
contains "$err" "did you mean 'save'"
