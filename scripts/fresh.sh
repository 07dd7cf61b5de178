#!/usr/bin/env bash
# fresh.sh [--release NAME] [--root FOLDER] [COMMAND...]: runs the README's commands, scripts/demo.sh and scripts/test.sh,
# as a newcomer would: on a bare Debian as an ordinary user, with only git, CA certificates, sudo and Rust. Prints times,
# disk and skips.
#
# Needs root, debootstrap (Debian: the package of that name), and this machine's Rust and access to the registries, which
# it copies in. Tries the last commit, not the working tree. Takes half an hour and 12 GB.
#
#   --release NAME  of Debian: bookworm, which is Debian 12 and the default, trixie (13) or sid
#   --root FOLDER   keeps the bare root in this folder. If it is there, of the same release, it is used again, with the
#                   newest commit.
#   COMMAND...      runs these instead: scripts/fresh.sh --root /var/tmp/fresh 'scripts/test.sh --test run gallery::'
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

fresh=
release=bookworm
while [[ ${1:-} == --* ]]; do
    case $1 in
        --release) release=$2 ;;
        --root) fresh=$(realpath -m "$2") ;;
        *) die "unknown option $1" ;;
    esac
    shift 2
done
(($# > 0)) || set -- scripts/demo.sh scripts/test.sh
((EUID == 0)) || die 'this needs root, for debootstrap and chroot'
for program in debootstrap git rustc unshare; do
    has_program "$program" || die "there is no $program"
done
if [[ -z $fresh ]]; then
    fresh=$(mktemp -d /var/tmp/fresh.XXXXXX)
    # It becomes `/` of an ordinary user.
    chmod 755 "$fresh"
    # What was mounted in it is gone: `inside` has its own mounts.
    trap 'rm -rf --one-file-system "$fresh"' EXIT
fi

# inside COMMAND...: runs it in the bare root, with mounts and processes of its own, which end with it.
inside() {
    unshare --mount --pid --fork --kill-child -- bash -euc '
        mount -t proc proc "$0/proc"
        mount -t sysfs -o ro sysfs "$0/sys"
        mount -t tmpfs tmpfs "$0/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$0/dev/pts"
        exec chroot "$0" "$@"' "$fresh" "$@"
}

# As the user, with nothing of this machine but its way to the registries.
as_newcomer() {
    local network
    mapfile -t network < <(env | grep -E '^(https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|SSL_CERT_[A-Z]*|PIP_(CERT|[A-Z_]*INDEX_URL)|CARGO_(HTTP|REGISTR)[A-Z_]*)=')
    inside setpriv --reuid 1000 --regid 1000 --init-groups env -i HOME=/home/newcomer USER=newcomer LANG=C.UTF-8 \
        TERM=dumb PATH=/home/newcomer/.cargo/bin:/usr/local/bin:/usr/bin:/bin ${network[@]+"${network[@]}"} \
        bash -c "cd ~/wavefield && $1" </dev/null
}

make_root() {
    local mirror
    say "making a bare Debian $release in $fresh"
    # The server that this machine's Debian comes from. By default debootstrap takes Debian's own.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
    debootstrap --variant=minbase --include=ca-certificates,git,sudo "$release" "$fresh" ${mirror:+"$mirror"} >"$log" ||
        die "debootstrap failed: $(tail -n 5 "$log")"
    # Debian's own images have its security updates, and no lists of packages yet.
    [[ $release == sid ]] ||
        echo "deb http://deb.debian.org/debian-security $release-security main" >>"$fresh/etc/apt/sources.list"
    rm -rf "$fresh"/var/lib/apt/lists/*
    # apt's `Valid-Until`, proxies and the like; names and certificates; the registries of pip and cargo.
    apt-config dump Acquire | grep -iE 'proxy|check-|::https?' >"$fresh/etc/apt/apt.conf.d/99host" || true
    cp /etc/resolv.conf /etc/hosts "$fresh/etc/"
    cp /etc/ssl/certs/ca-certificates.crt "$fresh/etc/ssl/certs/"
    [[ ! -e /etc/pip.conf ]] || cp /etc/pip.conf "$fresh/etc/"
    chroot "$fresh" useradd --create-home --shell /bin/bash newcomer
    echo 'newcomer ALL=(ALL) NOPASSWD: ALL' >"$fresh/etc/sudoers.d/newcomer"
    # In the folder where rustup puts its programs.
    cp -a "$(rustc --print sysroot)" "$fresh/home/newcomer/.cargo"
    [[ ! -e ${CARGO_HOME:-$HOME/.cargo}/config.toml ]] ||
        cp "${CARGO_HOME:-$HOME/.cargo}/config.toml" "$fresh/home/newcomer/.cargo/"
    echo "$release" >"$fresh/.release"
    git clone --quiet --no-hardlinks "$root" "$fresh/home/newcomer/wavefield"
}

megabytes() { du --summarize --one-file-system --block-size=1M "$fresh" | cut -f1; }

log=$(mktemp)
clone=$fresh/home/newcomer/wavefield
if [[ -d $clone ]]; then
    made=$(cat "$fresh/.release" 2>/dev/null) || die "$fresh does not say which release it holds. Remove it"
    [[ $made == "$release" ]] || die "$fresh holds $made, not $release: choose another folder"
    git -c safe.directory='*' -C "$clone" fetch --quiet "$root" HEAD
    git -c safe.directory='*' -C "$clone" reset --quiet --hard FETCH_HEAD
else
    make_root
fi
chown -R 1000:1000 "$fresh/home/newcomer"

failed=0
table=("Debian $(cat "$fresh/etc/debian_version"), $(nproc) cores, commit $(git -C "$root" rev-parse --short HEAD)")
for command; do
    say "\$ $command"
    before=$(megabytes) began=$SECONDS status=0
    as_newcomer "$command" 2>&1 | tee "$log" || status=$?
    ((status == 0)) || failed=1
    table+=("$command: exit $status, $((SECONDS - began)) s, $(($(megabytes) - before)) MB of disk")
    while read -r line; do table+=("    $line"); done < <(grep -E '^test.sh: |^python.sh: |skipped: |^test result: FAILED|^SKIPPED' "$log" | sort -u)
done
rm "$log"
printf '%s\n' '' "${table[@]}"
exit "$failed"
