# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Completion of Farandole's programs, for bash 4 or newer. Reads the options, their values and the commands from the
# program's --help, so that this one file serves all programs.

# _farandole_values HELP NAME: sets `candidates` to compgen's arguments for an option's value. NAME is the placeholder
# in --help: FILE, DIR, a choice such as in|out|both, or a name that a paragraph of --help explains, such as COLLECTIVE.
# For a comma-separated list such as `COLLECTIVE,...` sets `prefix` to the part of `current` before the last item.
_farandole_values() {
  local name=${2%%[ ,]*} words
  candidates=()
  case $2 in
    FILE) candidates=(-f) ;;
    DIR) candidates=(-d) ;;
    *'|'*) candidates=(-W "${2//|/ }") ;;
    *)
      words=$(sed -n "/^$name: /,/^\$/p" <<<"$1")
      words=${words#"$name: "}
      [[ -z $words ]] || candidates=(-W "${words//,/ }")
      [[ $2 != *,... ]] || prefix=${current%"${current##*,}"}
      ;;
  esac
}

_farandole() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} prefix='' candidates=()
  local program=${COMP_WORDS[0]/#\~/$HOME} command=${COMP_WORDS[1]} help commands value
  COMPREPLY=()
  # COMP_WORDS holds --option=value as three words: --option, = and value.
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  help=$("$program" --help 2>/dev/null) || return 0
  commands=$(sed -nE '/^Commands/,/^$/s/^  ([a-z]+) .*/\1/p' <<<"$help")
  if [[ -n $commands ]] && ((COMP_CWORD > 1)); then
    [[ $'\n'$commands$'\n' == *$'\n'$command$'\n'* ]] || return 0
    help=$("$program" "$command" --help 2>/dev/null) || return 0
    commands=
  fi
  candidates=(-W "$commands $(sed -nE 's/^  (-[a-z] \[ )?(--[a-z-]+).*/\2/p' <<<"$help")")
  if [[ $current != -* ]]; then
    value=
    if [[ $previous =~ ^-[a-z-]+$ ]]; then
      # Lines of --help: "  -o [ --option ] VALUE (=default)   meaning", "  --option [=in|out(=in)]   meaning"
      local option="($previous \[ --[a-z-]+ \]|(-[a-z] \[ )?$previous( \])?)"
      value=$(sed -nE "s/^  $option (\[=)?([A-Z][A-Z,.]*|[a-z0-9_]+(\|[a-z0-9_]+)+)([ (].*)?$/\5/p" <<<"$help")
    elif ((COMP_CWORD == 2)); then
      value=$(sed -nE '1s/^Usage: [^ ]+ [a-z]+ ([A-Z]+) .*/\1/p' <<<"$help")  # the command's operand
    fi
    [[ -z $value ]] || _farandole_values "$help" "$value"
  fi
  if ((${#candidates[@]} > 0)); then
    mapfile -t COMPREPLY < <(compgen "${candidates[@]}" -P "$prefix" -- "${current#"$prefix"}")
  fi
  # compopt fails when no completion is in progress, as in tests.
  if [[ ${candidates[0]-} == -[df] ]]; then compopt -o filenames 2>/dev/null || true; fi
}
complete -F _farandole farandole-bench farandole-info farandole-schedule farandole-train
