# shellcheck shell=bash
# Sets up what is missing: with apt on Debian and Ubuntu; elsewhere it lists the
# packages. demo.sh and test.sh source this and call `setup` with the tables that
# they need. It never asks apt for what is already there, so a second run is fast
# and works offline. At a terminal it asks first; `--yes`, as the script's first
# argument, is the answer.

yes=${CI:-}
if [[ ${1:-} == --yes ]]; then
    yes=true
    shift
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
apt_lists=/var/lib/apt/lists
# What the checks cover. wgpu takes minutes to build, and not everybody has OpenGL, so those are for CI.
crates=(--workspace --exclude vulkan-cuda-wgpu --exclude wavefield-render-to-cuda-example --exclude wavefield-wgpu-example --exclude wavefield-opengl-example)

say() { echo "${0##*/}: $*" >&2; }
die() { say "$@"; exit 1; }
has_program() { command -v "$1" >/dev/null; }

# The tables. Each line: a check whether it is there | its packages on Debian and
# Ubuntu | on Fedora | on Arch | what for. Of packages with a comma between them, the
# first that apt has. Those for Fedora and Arch come from their package lists and are
# not tested.

# Nothing runs without these. rustc links with cc.
essentials() {
    cat <<'END'
can_link                   | gcc libc6-dev       | gcc glibc-devel     | gcc               | linking Rust programs
has_library libvulkan.so.1 | libvulkan1          | vulkan-loader       | vulkan-icd-loader | finding the Vulkan driver
has_vulkan_driver          | mesa-vulkan-drivers | mesa-vulkan-drivers | vulkan-swrast     | Vulkan, on the CPU too
END
}

# The libraries that winit opens at run time for a window.
x11_window() {
    cat <<'END'
has_library libX11.so.6            | libx11-6           | libX11           | libx11           | a window under X11
has_library libX11-xcb.so.1        | libx11-xcb1        | libX11-xcb       | libx11           | a window under X11
has_library libXcursor.so.1        | libxcursor1        | libXcursor       | libxcursor       | its pointer
has_library libXi.so.6             | libxi6             | libXi            | libxi            | its mouse
has_library libxkbcommon-x11.so.0  | libxkbcommon-x11-0 | libxkbcommon-x11 | libxkbcommon-x11 | its keyboard
END
}
wayland_window() {
    cat <<'END'
has_library libwayland-client.so.0 | libwayland-client0 | libwayland-client | wayland      | a window under Wayland
has_library libxkbcommon.so.0      | libxkbcommon0      | libxkbcommon      | libxkbcommon | its keyboard
END
}

# If one of these is missing, the tests that need it print that they are skipped.
display_tools() {
    cat <<'END'
has_program Xvfb     | xvfb                    | xorg-x11-server-Xvfb     | xorg-server-xvfb         | tests: a display without a screen
has_program xwd      | x11-apps                | xwd                      | xorg-xwd                 | tests: what a window shows
has_program xdotool  | xdotool                 | xdotool                  | xdotool                  | tests: keys and mouse
END
}
test_tools() {
    display_tools
    cat <<'END'
has_program chromium | chromium                | chromium                 | chromium                 | tests: pages
has_validation_layer | vulkan-validationlayers | vulkan-validation-layers | vulkan-validation-layers | tests: wrong use of Vulkan
has_library libEGL.so.1      | libegl1                      | libglvnd-egl                       | libglvnd       | tests: OpenGL
has_library libEGL_mesa.so.0 | libegl-mesa0 libgl1-mesa-dri | mesa-libEGL mesa-dri-drivers       | mesa           | tests: OpenGL
has_program c++              | g++                          | gcc-c++                            | gcc            | tests: the example in C++
has_vulkan_headers           | libvulkan-dev                | vulkan-headers vulkan-loader-devel | vulkan-headers | tests: the example in C++
has_clang                    | clang-14,clang               | clang                              | clang          | tests: the kernels are built again
END
}
windows_tools() {
    cat <<'END'
has_program wine                   | wine wine64                | wine        | wine          | running Windows programs
has_program x86_64-w64-mingw32-gcc | gcc-mingw-w64-x86-64-win32 | mingw64-gcc | mingw-w64-gcc | linking Windows programs
END
}
python_tools() {
    cat <<'END'
has_pip              | python3 python3-pip     | python3-pip              | python-pip | the Python package, ptxas
has_venv             | python3-venv            | python3                  | python     | the Python package
END
}

# The C compiler and the files that it links every program with.
can_link() {
    has_program cc && [[ $(cc -print-file-name=crt1.o) == /* ]]
}

has_library() {
    # ldconfig is not on every user's PATH.
    local ldconfig
    ldconfig=$(PATH=$PATH:/usr/sbin:/sbin command -v ldconfig) || return 0 # unknown; the program will find out
    [[ $("$ldconfig" -p) == *$'\t'"$1 "* ]]
}

# vulkan_files PATTERN: lists the matching manifests that the loader finds.
vulkan_files() {
    local dir dirs IFS=:
    dirs=${XDG_CONFIG_HOME:-${HOME:-}/.config}:${XDG_CONFIG_DIRS:-/etc/xdg}:/usr/local/etc:/etc
    dirs+=:${XDG_DATA_HOME:-${HOME:-}/.local/share}:${XDG_DATA_DIRS:-/usr/local/share:/usr/share}
    for dir in $dirs; do compgen -G "$dir/vulkan/$1" || true; done
}

has_vulkan_driver() {
    # If one of these is set, the user has chosen a driver.
    [[ -z ${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}${VK_ADD_DRIVER_FILES:-} ]] || return 0
    local file
    while read -r file; do
        # NVIDIA's driver counts only if there is a GPU for it (nvidiactl; dxg under WSL).
        [[ $file != */nvidia* || -e /dev/nvidiactl || -e /dev/dxg ]] && return 0
    done < <(vulkan_files 'icd.d/*.json')
    return 1
}

has_validation_layer() {
    [[ -z ${VK_LAYER_PATH:-}${VK_ADD_LAYER_PATH:-} ]] || return 0
    [[ -n $(vulkan_files 'explicit_layer.d/VkLayer_khronos_validation.json') ]]
}

# With the library to link with. Debian 11 has the headers of Vulkan 1.2.
has_vulkan_headers() {
    has_program c++ && [[ $(c++ -print-file-name=libvulkan.so) == /* &&
        $(c++ -include vulkan/vulkan.h -dM -E -x c++ /dev/null 2>/dev/null) == *'define VK_API_VERSION_1_3 '* ]]
}

# Only clang 14 writes the PTX that is checked in, letter for letter. Where apt has none, any other builds the kernels.
has_clang() {
    has_program clang-14 || { ! { has_apt && apt_knows clang-14; } && "$root/scripts/kernels.sh" clang >/dev/null 2>&1; }
}

# Debian's venv lacks pip unless a separate package is installed.
has_venv() { python3 -c 'import venv, ensurepip' 2>/dev/null; }

has_pip() { python3 -m pip --version >/dev/null 2>&1; }

# find_missing TABLE...: fills debian, fedora and arch with the missing packages, and purposes with a line for each.
find_missing() {
    local table check on_debian on_fedora on_arch purpose words
    debian=() fedora=() arch=() purposes=()
    for table; do
        while IFS='|' read -r check on_debian on_fedora on_arch purpose; do
            read -ra words <<<"$check"
            "${words[@]}" </dev/null && continue
            read -ra words <<<"$on_debian" && debian+=("${words[@]}")
            purposes+=("$(printf '%-28s %s' "${words[*]//,/ or }" "${purpose# }")")
            read -ra words <<<"$on_fedora" && fedora+=("${words[@]}")
            read -ra words <<<"$on_arch" && arch+=("${words[@]}")
        done < <("$table")
    done
}

has_all() {
    find_missing "$@"
    ((${#debian[@]} == 0))
}

has_cargo() {
    # A shell that was started before the installation lacks cargo on its PATH.
    has_program cargo || PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin
    has_program cargo
}

# The oldest Rust for what is built: the tool, which Cargo.toml names last, or with `builds=demo` the demo.
oldest_rust() {
    local versions
    mapfile -t versions < <(sed -n '/^rust-version = /s/.*"\(.*\)"/\1/p' "$root/Cargo.toml")
    if [[ ${builds:-} == demo ]]; then echo "${versions[0]}"; else echo "${versions[1]}"; fi
}

need_rust() {
    local oldest have
    has_cargo || die 'no cargo. Install Rust as https://rustup.rs says, then run this again.'
    oldest=$(oldest_rust)
    read -r _ have _ <<<"$(rustc --version)"
    # An old cargo would report errors about editions and lock files instead.
    [[ $(printf '%s\n' "$oldest" "$have" | sort -V) == "$oldest"$'\n'* ]] ||
        die "Rust $have is too old; this needs $oldest or newer. See https://rustup.rs."
}

has_apt() { has_program apt-get && has_program dpkg; }

# Whether apt can install it, according to its lists.
apt_knows() { [[ $(LC_ALL=C apt-cache policy "$1") == *'Candidate: '[!\(]* ]]; }

# Before the first update apt has no lists.
has_lists() { [[ -n $(compgen -G "$apt_lists/*Packages*") ]]; }

# Splits `debian` into known and unknown packages.
ask_apt() {
    local packages package
    known=() unknown=()
    for packages in "${debian[@]}"; do
        for package in ${packages//,/ }; do
            has_lists && ! apt_knows "$package" || break
            package=
        done
        if [[ -n $package ]]; then known+=("$package"); else unknown+=("$packages"); fi
    done
}

# At a terminal, asks once. Without one, or with --yes, the answer is yes.
agreed() {
    local answer
    [[ $yes != true && -t 0 && -t 2 ]] || return 0
    read -rp "${0##*/}: install it now with $1? [Y/n] " answer && [[ $answer != [nN]* ]]
}

apt_get() {
    local command=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@")
    ((EUID == 0)) || command=(sudo "${command[@]}")
    # Errors go to stderr, which stays visible.
    "${command[@]}" >/dev/null
}

install_with_apt() {
    local status=0 by=apt-get packages
    ((EUID == 0)) || by=sudo
    ask_apt
    # What a release does not have, another run will not find either: then apt has nothing to do.
    if ((${#known[@]} > 0)); then
        say 'as root, this installs it:'
        # On a separate line, to be copied.
        echo "apt-get update && apt-get install --no-install-recommends ${known[*]}" >&2
        has_lists || for packages in "${debian[@]}"; do
            [[ $packages != *,* ]] || say "of ${packages//,/ or }, the first that apt knows after its update"
        done
        if ! has_program "$by"; then
            say 'nothing is installed: you are not root, and there is no sudo'
        elif ! agreed "$by"; then
            say 'nothing is installed'
        else
            say "installing it with $by"
            apt_get update || status=$?
            # A broken source may not matter here: the installation decides. apt-get fails with 100, sudo with another code.
            if ((status == 0 || status == 100)); then
                ((status == 0)) || say 'note: apt-get update failed'
                status=0
                ask_apt
                apt_get install --yes --no-install-recommends "${known[@]}" || status=$?
            fi
            case $status in
                0) ;;
                100) say 'apt-get failed. Is this machine online?' ;;
                *) say "nothing is installed: $by failed" ;;
            esac
        fi
    fi
    ((${#unknown[@]} == 0)) || say "note: apt has no ${unknown[*]//,/ or } here"
}

name_packages() {
    say 'by the names of some distributions:'
    say "    Debian, Ubuntu:      ${debian[*]//,/ or }"
    say "    Fedora (not tested): ${fedora[*]}"
    say "    Arch (not tested):   ${arch[*]}"
}

# SwiftShader is another software driver, for the tests of drivers that differ. It is
# in Debian's chromium-common. It goes into target/, because every program would find
# it in the system. Without it those tests print that they are skipped.
fetch_swiftshader() {
    local to=$root/target/swiftshader from=usr/lib/chromium
    [[ ! -e $to/vk_swiftshader_icd.json ]] && has_apt && apt_knows chromium-common || return 0
    say 'fetching SwiftShader (32 MB) into target/'
    mkdir -p "$to/package"
    (
        cd "$to/package"
        apt-get -qq download chromium-common 2>/dev/null
        dpkg-deb --fsys-tarfile ./*.deb |
            tar -x "./$from/libvk_swiftshader.so" "./$from/vk_swiftshader_icd.json"
        # The manifest comes last: its presence means that everything is there.
        mv "$from/libvk_swiftshader.so" .. && mv "$from/vk_swiftshader_icd.json" ..
    ) || say 'note: SwiftShader could not be fetched'
    rm -rf "$to/package"
}

# setup TABLE...: installs what is missing; exits if the essentials are still missing.
setup() {
    need_rust
    if [[ $(uname) != Linux ]]; then
        say 'note: not Linux, so nothing is set up. What is needed is a Vulkan driver.'
    elif has_all "$@"; then
        say 'nothing to install'
    else
        say 'missing here:'
        printf '    %s\n' "${purposes[@]}" >&2
        if has_apt; then install_with_apt; else name_packages; fi
        has_all essentials || die "cannot go on: without some of that nothing runs"
        has_all "$@" || say 'going on: only what needs them is left out'
    fi
}

# aloud NAME COMMAND...: runs the command, and says every minute that it still runs.
aloud() {
    local name=$1 status=0 clock
    shift
    (
        SECONDS=0
        trap 'kill $! 2>/dev/null; exit' TERM
        # Ends with this script, even if that is killed.
        while sleep 60 >/dev/null 2>&1 & wait $! && kill -0 $$ 2>/dev/null; do
            say "$name: still running after $((SECONDS / 60)) min"
        done
    ) &
    clock=$!
    "$@" || status=$?
    kill "$clock" 2>/dev/null && wait "$clock" 2>/dev/null || true
    return "$status"
}

# announce WHAT MINUTES [SPACE]: prints how long it takes here, by its minutes on one core, and how much disk it needs.
announce() {
    local cores
    cores=$(nproc)
    say "$1 takes about $((($2 + cores - 1) / cores)) min here ($2 min on one core)${3:+ and $3 of disk}"
}

# is_built FILE: whether cargo has built it in its folder.
is_built() { [[ -e ${CARGO_TARGET_DIR:-$root/target}/$1 ]]; }
