# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the tests of command lines. The tests run in an empty directory, which is removed afterwards.
# The output of the last command is in the file `out`. Patterns are extended regular expressions for one line.
set -u
# Settings of whoever runs the tests would change what is printed.
# shellcheck disable=SC2086  # a list of names
unset ${!FARANDOLE_*}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
failures=0

fail() {
  echo "FAIL: $*"; sed 's/^/  /' out
  failures=$((failures + 1))
}
# ends STATUS PATTERN COMMAND...: an empty PATTERN asks for no text.
ends() {
  local status=$1 pattern=$2 came=0; shift 2
  timeout 60 "$@" >out 2>&1 </dev/null || came=$?
  if [ $came != "$status" ] || { [ -n "$pattern" ] && ! grep -qE -- "$pattern" out; }; then
    fail "exit status $came (expected $status), expected text: $pattern; of: $*"
  fi
}
refused() { ends 2 "$@"; }
works() { ends 0 "$@"; }
# The last output has a line like this; has no such line; has so many.
has() { grep -qE -- "$1" out || fail "no line matches: $1"; }
has_no() { ! grep -qE -- "$1" out || fail "a line matches: $1"; }
has_lines() { [ "$(grep -cE -- "$2" out)" = "$1" ] || fail "$(grep -cE -- "$2" out) lines match (expected $1): $2"; }
# offers OPTIONS COMMAND...: its --help names these options, --help and --version, with or without a short form, and no
# others.
offers() {
  local options=$1; shift
  works 'help' "$@" --help
  # shellcheck disable=SC2086  # a list
  printf -- '--%s\n' help version $options | sort >expected
  # An option stands at the begin of its line; --name, or -n [ --name ].
  sed -nE 's/^  (-[a-z] \[ )?(--[a-z-]+).*/\2/p' out | sort >offered
  cmp -s expected offered || fail "$* --help has other options than expected: $(diff expected offered | grep '^[<>]' | tr '\n' ' ')"
  rm -f expected offered
}
# A full disk, where the system can act one.
refuses_full_disk() { [ ! -e /dev/full ] || { "$@" >/dev/full 2>out </dev/null; [ $? = 1 ] || fail "full disk: $*"; }; }
finish() {
  [ $failures = 0 ] && echo "everything as it should be"
  exit $((failures > 0))
}
