#!/usr/bin/env bash
# windows.sh [--yes]: builds the demo, the tool and the library's tests for Windows with mingw-w64, and runs them in Wine on the
# software device, with a line for each check. Sets up what is missing, like test.sh; windows-rust.sh fetches the compiler.
# WAVEFIELD_KEEP=FOLDER keeps the screenshots.
#
# Exit codes: 0 clean, 1 errors, 77 skipped, with the reason.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$root"
setup essentials x11_window display_tools windows_tools
# The picture to compare with.
cargo build --quiet --locked -p wavefield-demo
linux_demo=${CARGO_TARGET_DIR:-$root/target}/debug/wavefield-demo
# shellcheck source=scripts/windows-rust.sh
source scripts/windows-rust.sh x86_64-pc-windows-gnu
has_all display_tools windows_tools || skip "there is no ${debian[*]}"

export WINEPREFIX=$home/wine WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml=' LC_ALL=C.UTF-8 NODEVICE_SELECT=1
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=wine
# Nothing is timed here, and this takes half the time to compile.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$home/run
built=$CARGO_TARGET_DIR/x86_64-pc-windows-gnu/debug
for_windows() { cargo "$1" --locked --quiet "${build_std[@]}" --target x86_64-pc-windows-gnu "${@:2}"; }
# Always the same packages: with others, cargo chooses other features and builds again.
tests() { for_windows test -p wavefield-demo -p wavefield -p vulkan-cuda "$@"; }

work=$(mktemp -d)
keep=$(realpath "${WAVEFIELD_KEEP:-$work}")
mkdir -p "$keep"
server=
# Only here: a subshell that is killed at its very start still has this trap.
trap '[[ $BASHPID != $$ ]] || { wineserver -k; kill $server; rm -rf "$work"; } 2>/dev/null || true' EXIT

# Wine's desktop gives windows their frames and buttons. It must be there before a program asks for Vulkan.
prepare() {
    # Wine 8 lacks this library, which Rust's `std` needs.
    mkdir "$work/dlls"
    x86_64-w64-mingw32-gcc -shared -s -o "$work/dlls/bcryptprimitives.dll" -xc - -ladvapi32 <<'END'
#include <windows.h>
BOOLEAN WINAPI SystemFunction036(PVOID buffer, ULONG length);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length) {
    return SystemFunction036(buffer, (ULONG)length);
}
END
    # `send EVENT COMMAND` sends the command an event of the console, as Windows does, after a line of input. It ends with its code.
    x86_64-w64-mingw32-gcc -s -o "$work/send.exe" -xc - <<'END'
#include <stdio.h>
#include <windows.h>
int main(int count, char **words) {
    STARTUPINFO startup = {sizeof startup};
    PROCESS_INFORMATION made = {0};
    DWORD code = 99;
    CreateProcess(NULL, words[2], NULL, NULL, TRUE, 0, NULL, NULL, &startup, &made);
    getchar();
    void *receive = GetProcAddress(GetModuleHandle("kernelbase"), "CtrlRoutine");
    CreateRemoteThread(made.hProcess, NULL, 0, receive, (void *)(INT_PTR)(*words[1] - '0'), 0, NULL);
    WaitForSingleObject(made.hProcess, 60000);
    GetExitCodeProcess(made.hProcess, &code);
    return code;
}
END
    cp "$work/dlls/bcryptprimitives.dll" "$built"
    cp "$work/dlls/bcryptprimitives.dll" "$built/deps"
    cp "$built/wavefield_stand_in.dll" "$work/dlls/nvcuda.dll"
    wineboot --init
    wine reg add 'HKCU\Software\Wine\Explorer' /f /v Desktop /d Default
    wine reg add 'HKCU\Software\Wine\Explorer\Desktops' /f /v Default /d 1280x720
    # A desktop ends with its last program, so one stays.
    tail --pid=$$ -f /dev/null | wine cmd &
    wine explorer /desktop=Default,1280x720 &
    wait_for window 'Wine desktop'
}

failed=()
# check NAME FUNCTION: runs it in a folder of its own, and shows what it prints if it fails. One that is skipped ends with 77.
check() {
    local status=0
    mkdir "$work/$2"
    # In the background, because a failure in the middle does not end what stands before `||`.
    (cd "$work/$2" && "$2") >"$work/log" 2>&1 &
    wait $! || status=$?
    case $status in
        0) say "ok       $1" ;;
        77) say "skipped: $1: $(tail -n 1 "$work/log")" ;;
        *) say "FAILED   $1"; cat "$work/log" >&2; failed+=("$1") ;;
    esac
}

# ends CODE WORDS PROGRAM ARGUMENTS...: the program must end with this code and print these words.
ends() {
    local code=0
    timeout 300 wine "$built/$3.exe" "${@:4}" >said 2>&1 </dev/null || code=$?
    ((code == $1)) && grep -qF -- "$2" said && return
    cat said
    echo "${*:3} ended with $code, and not with $1 and \`$2\`"
    return 1
}

# wait_for COMMAND...: until it succeeds.
wait_for() {
    local end=$((SECONDS + 180))
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || { echo "in vain: $*"; return 1; }
        sleep 0.2
    done
}

options() {
    local command
    ends 0 'Usage: wavefield-demo.exe' wavefield-demo --help
    for command in run devices verify bench; do ends 0 'Usage: wavefield.exe' wavefield $command --help; done
    ends 2 'at least 2' wavefield-demo --grid 1x5
    ends 2 'unexpected argument' wavefield verify --no-such-option
    ends 2 'exists on Linux only' wavefield serve --socket a.sock
    ends 2 'exists on Linux only' wavefield --web
}

picture() {
    local arguments=(--compute --frames 5 --grid 64x64 --output)
    "$linux_demo" "${arguments[@]}" linux.png
    ends 0 'compute shader' wavefield-demo "${arguments[@]}" windows.png
    cmp linux.png windows.png
}

# The rest of the tool: films, traces, `bench` and its report. `guide` has commands of Linux, and `dependencies` starts cargo.
tool_tests() {
    cd "$root"
    WAVEFIELD_REQUIRE_TOOLS='' tests --test program -- --skip guide:: --skip dependencies::
}

folders() {
    mkdir 'Bilder für alle'
    ends 0 'compute shader' wavefield-demo --frames 2 --grid 16x16 --output 'Bilder für alle/ä.png'
    ends 0 ö.png wavefield --headless --frames 2 --grid 16x16 --output 'Bilder für alle\ö.png'
    [[ $(cd Bilder* && echo *) == 'ä.png ö.png' ]]
    local program
    for program in wavefield-demo 'wavefield --headless'; do
        ends 1 'cannot write' $program --output 'no folder/a.png'
        ends 1 'the name of a device' $program --output nul.png
    done
}

# It is refused before anything is drawn.
read_only_file() {
    ((EUID != 0)) || { echo 'Wine lets root write everything'; return 77; }
    touch kept.png && chmod a-w kept.png
    ends 1 'cannot write' wavefield-demo --frames 1000000 --output kept.png
    ends 1 'cannot write' wavefield --headless --frames 1000000 --output kept.png
    [[ ! -s kept.png ]]
}

# The run ends after the current frame: the demo writes that one, the tool only what is whole. 0 is Ctrl-C, 1 Ctrl-Break, at 2 the
# console is closed, and at 5 the user logs off.
console() {
    local event
    for event in 0 1 2 5; do
        send "$event" "wavefield-demo --output $event.png"
        ! send "$event" "wavefield --headless --output none.png --trace $event.svg"
        grep 'stopped after frame' said
    done
    [[ $(echo *) == '0.png 0.svg 1.png 1.svg 2.png 2.svg 5.png 5.svg said' ]]
}
send() {
    rm -f said
    (wait_for grep 'compute shader' said; sleep 3; echo) |
        wine "$work/send.exe" "$1" "$(winepath -w "$built")\\$2 --frames 1000000 --grid 64x64" >said 2>&1
}

window() { xdotool search --onlyvisible --name "$1"; }
size_of() { xdotool getwindowgeometry "$1" | sed -n 's/.*Geometry: //p'; }
is_resized() { [[ $(size_of "$1") != "$2" ]]; }
# screenshot NAME: it must have many colours. Wine paints a window black when its title changes, until the next frame.
screenshot() {
    xwd -silent -root -out "$keep/$1.xwd"
    (($(tail -c +4000 "$keep/$1.xwd" | od -An -v -tx4 -w4 | sort -u | wc -l) > 1000))
}
# The frame is part of the window: its lower right corner resizes it, and the button in the upper right one closes it.
demo_window() {
    local opened size x y
    wine "$built/wavefield-demo.exe" --grid 64x64 --size 640x360 >said 2>&1 &
    wait_for window 'wavefield: .*compute shader'
    opened=$(window wavefield:)
    xdotool windowfocus "$opened" key c
    wait_for window 'the CPU waits'
    size=$(size_of "$opened")
    x=$((${size%x*} - 2)) y=$((${size#*x} - 2))
    xdotool mousemove $x $y mousedown 1 sleep 0.5 mousemove $((x + 60)) $((y + 40)) sleep 0.5 \
        mousemove $((x + 160)) $((y + 120)) sleep 0.5 mouseup 1
    wait_for is_resized "$opened" "$size"
    sleep 3
    wait_for screenshot demo
    size=$(size_of "$opened")
    xdotool mousemove $((${size%x*} - 14)) 12 click 1
    wait $!
}
tool_window() {
    wine "$built/wavefield.exe" --grid 64x64 --size 960x540 >said 2>&1 &
    wait_for window 'wavefield: .*frames/s'
    xdotool windowfocus "$(window wavefield:)" key s
    wait_for test -s wavefield-1.png
    xdotool key F1
    sleep 3
    wait_for screenshot tool
    xdotool key alt+F4
    wait $!
}

# The stand-in is nvcuda.dll, and its first device is Vulkan's.
stand_in() {
    export STAND_IN_CUDA_DEVICES=2 STAND_IN_LUID=7 STAND_IN_UUID WINEPATH
    ends 0 llvmpipe wavefield devices
    STAND_IN_UUID=$(grep -oE -m 1 '[0-9a-f]{8}-[0-9a-f-]{27}' said)
    WINEPATH=$(winepath -w "$work/dlls")
    ends 0 ' + CUDA 0' wavefield devices
}
cuda() {
    stand_in
    STAND_IN_FAIL=cuInit:100 ends 0 'cuInit failed on the CUDA driver, nvcuda.dll' wavefield devices
    cd "$root"
    # The simulations take minutes here, and no system matters to them.
    tests --lib --test library -- --skip no_interleaving --skip no_order_of_calls
}
hand_off() {
    stand_in
    ! grep -q 'cannot export a buffer' said || { echo "this Wine's Vulkan exports no memory"; return 77; }
    ends 0 'verdict       clean' wavefield verify --producer cuda --frames 20 --grid 64x64
}

say 'building for Windows: the first time takes about 12 minutes on one core'
for_windows build -p wavefield-stand-in
aloud build tests --no-run --lib --test demo --test program --test library
Xvfb -displayfd 1 -screen 0 1280x720x24 -nolisten tcp -noreset -r >"$work/display" 2>/dev/null &
server=$!
wait_for test -s "$work/display"
DISPLAY=:$(<"$work/display")
export DISPLAY
prepare >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

check 'help, wrong options, what exists on Linux only' options
check "the demo's picture equals Linux's" picture
check "the tool's tests: pictures, films, traces, verify, bench and its report" tool_tests
check 'folders with spaces and umlauts, no folder, no file' folders
check 'a read-only file stays' read_only_file
check 'Ctrl-C, Ctrl-Break, a closed console, the end of the session' console
check "the demo's window: keys, resize, close" demo_window
check "the tool's window: keys, help, close" tool_window
check "CUDA's half on the stand-in, and the library's tests" cuda
check 'a hand-off' hand_off
((${#failed[@]} == 0)) || die "FAILED: ${failed[*]}"
say 'the Windows build runs in Wine'
