# shellcheck shell=bash
# checks.sh: for the scripts that run checks one after the other and end with a table. Sourced behind setup.sh.
# They set out (the folder of the logs), and where a line shows what a check has printed, figures (a pattern of grep -E).

table=()
failed=0
width=18
figures=

# need_nothing_of LACK…: ends where something is lacking; without it every check would fail, each with an error of its own.
need_nothing_of() {
  (($# > 0)) || return 0
  say 'this check needs what is not here:'
  printf '    %s\n' "$@" >&2
  exit 1
}

# built NAME: the program that cargo has built for release.
built() {
  echo "$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/$1"
}

# check NAME COMMAND…: runs it, keeps its output, and adds a line to the table.
check() {
  local name=$1 start=$SECONDS verdict=ok shown=
  shift
  if ! "$@" >"$out/$name.log" 2>&1; then
    verdict=FAILED
    failed=1
    sed "s/^/    $name: /" "$out/$name.log" | tail -n 25
  fi
  [ -z "$figures" ] || shown="  $(grep -hE "$figures" "$out/$name.log")"
  table+=("$(printf "%-${width}s %-7s %4d s%s" "$name" "$verdict" $((SECONDS - start)) "$shown")")
}

# finds COMMAND…: exits with 1 because of wrong words, and counts some.
finds() {
  local text status
  text=$("$@" 2>&1)
  status=$?
  echo "$text"
  [ "$status" = 1 ] && grep -qE ' [1-9][0-9]* wrong' <<<"$text"
}

# end_with_table: what each check has come to.
end_with_table() {
  printf '%s\n' '' "${table[@]}"
  exit "$failed"
}
