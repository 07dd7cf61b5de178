#!/usr/bin/env bash
# ssh-check.sh: a thief, another user of the GPU machine, waits on ::1 for what comes through the tunnel to a page of --web.
#
# Uses a real sshd in namespaces of its own, where `localhost` means 127.0.0.1 and ::1, as Debian's hosts file says. Checks
# that the thief reads along if the tunnel leads to `localhost`, hears nothing through the command that wavefield prints, and
# cannot listen beside wavefield. Needs root and python3. If OpenSSH is not installed, it unpacks Debian's under
# target/ssh-check. WAVEFIELD_BIN is the program (default: cargo builds it).
#
# Exit codes: 0 right, 1 wrong, 77 skipped, with the reason.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
home=$root/target/ssh-check
unpacked=$home/root
namespaces=(unshare --mount --net --pid --fork --kill-child --mount-proc)

skip() { say "skipped: $*"; exit 77; }

has_openssh() { has_program sshd && has_program ssh && has_program ssh-keygen; }

# Unpacks it, with what it needs and is not installed.
fetch() {
    local part=$home/part package
    has_apt && apt_knows openssh-server || skip 'there is no sshd, and apt has none'
    say 'fetching OpenSSH into target/'
    rm -rf "$part"
    mkdir -p "$part/debs/partial" "$part/root"
    apt_get install --yes --download-only --no-install-recommends -o Dir::Cache::archives="$part/debs" \
        openssh-server openssh-client 2>/dev/null || skip 'OpenSSH could not be fetched. Is this machine online?'
    for package in "$part/debs"/*.deb; do
        dpkg-deb -x "$package" "$part/root" || skip "$package could not be unpacked"
    done
    # Only now, whole.
    mv "$part/root" "$unpacked"
    rm -r "$part"
}

if [[ ${1:-} != inside ]]; then
    ((EUID == 0)) || skip 'this needs root, for namespaces and a second user'
    python3 -c 'import http.client, http.server' 2>/dev/null || skip 'there is no python3 with its libraries'
    for program in unshare setpriv; do has_program "$program" || skip "there is no $program"; done
    "${namespaces[@]}" mount -t tmpfs none /run 2>/dev/null || skip 'this machine allows no namespaces'
    PATH=$PATH:/usr/sbin
    has_openssh || [[ -d $unpacked ]] || fetch
    if [[ -z ${WAVEFIELD_BIN:-} ]]; then
        has_cargo || skip 'there is no cargo'
        cargo build --manifest-path "$root/Cargo.toml" --locked --quiet -p wavefield
        WAVEFIELD_BIN=${CARGO_TARGET_DIR:-$root/target}/debug/wavefield
    fi
    WAVEFIELD_BIN=$(realpath "$WAVEFIELD_BIN")
    export WAVEFIELD_BIN PATH
    exec "${namespaces[@]}" "$0" inside
fi

# ---- in the namespaces, whose processes end with this one

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
chmod 755 .
if ! has_openssh; then
    PATH=$PATH:$unpacked/usr/sbin:$unpacked/usr/bin
    LD_LIBRARY_PATH=$(find "$unpacked" -name 'lib*.so.*' -printf '%h\n' | sort -u | paste -sd:)
    export LD_LIBRARY_PATH
fi
wrong() { say "FAILED: $*"; tail -n 20 ./*.log >&2; exit 1; }
# until_true COMMAND...
until_true() {
    local _
    for _ in {1..600}; do
        ! "$@" 2>/dev/null || return 0
        sleep 0.1
    done
    wrong "not within a minute: $*"
}
listens() { : <>"/dev/tcp/127.0.0.1/$1"; }

printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' >hosts
{ grep -v '^sshd:' /etc/passwd; echo 'sshd:x:101:65534::/run/sshd:/usr/sbin/nologin'; } >passwd
mount --bind hosts /etc/hosts
mount --bind passwd /etc/passwd
# Without PAM, sshd refuses an account whose password is locked by a `!`.
echo 'root:*:::::::' >shadow
[[ ! -e /etc/shadow ]] || mount --bind shadow /etc/shadow
mount -t tmpfs none /run
mkdir /run/sshd
cat >up.py <<'END_OF_FILE'
import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14s", b"lo", 1, b""))  # SIOCSIFFLAGS, IFF_UP
END_OF_FILE
cat >thief.py <<'END_OF_FILE'
import socket, sys, threading

def say(*words): print(*words, flush=True)

def pump(source, to):
    try:
        while data := source.recv(65536): to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError: pass

try: listener = socket.create_server(("::1", 8090), family=socket.AF_INET6)
except OSError as error: sys.exit(say("cannot listen:", error))
say("listens")
while True:
    victim, _ = listener.accept()
    heard = victim.recv(4096)
    say("heard", heard.split(b"\r\n")[0].decode())
    # Passes everything on, so nobody notices.
    page = socket.create_connection(("127.0.0.1", 8090))
    page.sendall(heard)
    for ends in (victim, page), (page, victim): threading.Thread(target=pump, args=ends, daemon=True).start()
END_OF_FILE
python3 up.py
python3 -c 'import socket; socket.create_server(("::1", 0), family=socket.AF_INET6)' 2>/dev/null || skip 'there is no IPv6 here'

for key in key host; do
    ssh-keygen -q -t ed25519 -N '' -f "$key" || skip 'ssh-keygen does not run here'
done
cat >config <<END_OF_FILE
Port 2222
ListenAddress 127.0.0.1
HostKey $work/host
AuthorizedKeysFile $work/key.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
END_OF_FILE
sshd=$(command -v sshd)
libexec=${sshd%/sbin/sshd}/lib/openssh
[[ ! -x $libexec/sshd-session ]] || echo "SshdSessionPath $libexec/sshd-session" >>config
[[ ! -x $libexec/sshd-auth ]] || echo "SshdAuthPath $libexec/sshd-auth" >>config
{ ssh -V && "$sshd" -t -f config; } >sshd.log 2>&1 || skip "$sshd does not run here: $(tail -n 1 sshd.log)"
"$sshd" -D -e -f config >sshd.log 2>&1 &
until_true listens 2222

# asked FORWARD: the first line of the page's answer, through `ssh -L FORWARD`. The user's machine is this one too, so the
# tunnel begins at another port.
asked() {
    local ssh=(ssh -F none -p 2222 -i key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null
        -o LogLevel=ERROR -o ExitOnForwardFailure=yes -S socket)
    "${ssh[@]}" -fNM -L "127.0.0.1:28090:${1#*8090:}" root@127.0.0.1 >ssh.log 2>&1 || wrong "ssh -L $1"
    python3 -c 'import http.client as h; c = h.HTTPConnection("127.0.0.1", 28090); c.request("GET", "/?secret"); print(c.getresponse().status)'
    "${ssh[@]}" -O exit root@127.0.0.1 2>/dev/null
}
start_thief() {
    rm -f thief.log
    # It may not start what only root has.
    setpriv --reuid 65534 --regid 65534 --clear-groups env PATH=/usr/bin:/bin python3 thief.py >thief.log 2>&1 &
    thief=$!
    until_true test -s thief.log
}
# answered FORWARD by [thief]: what is asked through it is answered, and the thief hears it, or not.
answered() {
    [[ $(asked "$1") == 200 ]] || wrong "nobody answers through ssh -L $1"
    if grep -q '^heard GET /?secret' thief.log; then said=hears; else said='does not hear'; fi
    [[ $said == "$2" ]] || wrong "through ssh -L $1 the thief $said it"
    say "ssh -L $1: the thief $said it"
}

"$WAVEFIELD_BIN" --web --grid=16x16 --size=160x120 >web.log 2>&1 &
wavefield=$!
until_true grep -q 'ssh -L' web.log
forward=$(sed -n 's/.* ssh -L \([^ ]*\) .*/\1/p' web.log)
start_thief
grep -q '^cannot listen' thief.log || wrong 'the thief listens beside wavefield'
answered localhost:8090:localhost:8090 'does not hear'
kill "$wavefield" && wait "$wavefield" || wrong 'wavefield did not end well'

start_thief
! timeout 60 "$WAVEFIELD_BIN" --web --grid=16x16 --size=160x120 >web.log 2>&1 || wrong 'wavefield listens beside the thief'
grep -qF 'cannot listen at [::1]:8090' web.log || wrong 'wavefield does not name ::1'
# A page that listens at 127.0.0.1 only: now the command alone decides.
mkdir page
python3 -m http.server --bind 127.0.0.1 --directory page 8090 >page.log 2>&1 &
until_true listens 8090
answered "$forward" 'does not hear'
answered 8090:localhost:8090 hears
kill "$thief"
say 'the printed command leads to nobody else'
