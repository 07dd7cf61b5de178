# shellcheck shell=bash
# checks.sh: for scripts that run several checks and end with a table. Source it after setup.sh. The script must set
# `out`, the folder for the logs. It may set `figures`, a pattern for grep -E: each line of the table then shows the
# check's matching output. It may set `only`, a pattern for the names of the checks to run; after a `!`, of those to
# leave out.

table=()
failed=0
width=18
figures=
only=

# need_nothing_of LACK…: exits if anything is listed. Without this, every check would fail with a different error.
need_nothing_of() {
  (($# > 0)) || return 0
  say 'this check needs what is not here:'
  printf '    %s\n' "$@" >&2
  exit 1
}

# built NAME: the path of the program that cargo built in release mode.
built() {
  echo "$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/$1"
}

# check NAME COMMAND…: runs the command, keeps its output, and adds a line to the table.
check() {
  local name=$1 start=$SECONDS verdict=ok shown=
  shift
  case $only in
    !*) [[ ! $name =~ ${only#!} ]] || return 0 ;;
    ?*) [[ $name =~ $only ]] || return 0 ;;
  esac
  if ! "$@" >"$out/$name.log" 2>&1; then
    verdict=FAILED
    failed=1
    sed "s/^/    $name: /" "$out/$name.log" | tail -n 25
  fi
  [ -z "$figures" ] || shown="  $(grep -hE "$figures" "$out/$name.log")"
  table+=("$(printf "%-${width}s %-7s %4d s%s" "$name" "$verdict" $((SECONDS - start)) "$shown")")
}

# finds COMMAND…: succeeds if the command exits with 1 and counts wrong words.
finds() {
  local text status
  text=$("$@" 2>&1)
  status=$?
  echo "$text"
  [ "$status" = 1 ] && grep -qE ' [1-9][0-9]* wrong' <<<"$text"
}

# end_with_table: prints the result of each check and exits.
end_with_table() {
  printf '%s\n' '' "${table[@]}"
  exit "$failed"
}
