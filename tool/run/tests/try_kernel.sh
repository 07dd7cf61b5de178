#!/bin/sh
# Replaces `wavefield try-kernel` in the tests of src/child_process/child.rs. The entry's name selects what it does.
for argument; do
    case $argument in --entry=*) entry=${argument#--entry=} ;; esac
done
launched() { echo 'wavefield try-kernel: launched'; }
# shellcheck disable=SC2016 # The backquotes are intended.
case $entry in
    fine) grep -q .entry && launched ;;
    nothing) ;;
    words) launched; printf 'a library says hello\nerror: kernel `words`: it is broken\nand how\n' >&2; exit 1 ;;
    usage) echo 'error: unexpected argument' >&2; exit 2 ;;
    dies) launched; kill -SEGV $$ ;;
    endless) launched; exec sleep 1000 ;;
    # Writes more than a pipe holds to both outputs. Only the start of the error is kept.
    flood) launched; printf 'error: much' >&2; head -c 3000000 /dev/zero | tee /dev/stderr; exit 1 ;;
    # Its own child keeps the pipes open.
    leaves) launched; sleep 1000 & echo $! >&2; exit 1 ;;
    descriptors) launched; ls -l /proc/self/fd >&2; exit 1 ;;
esac
