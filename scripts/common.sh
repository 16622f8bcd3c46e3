# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# What the scripts share. Sourced, not run: enters the top directory and takes over the toolchain `setup` found.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Only a terminal gets bold headings.
if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi

# Prints one line about what goes on.
say() { printf '%s\n' "$*"; }

# Prints why the script cannot go on, and ends it.
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Prints a number of seconds as "42 s" or "3 min 07 s".
duration() {
    if [ "$1" -lt 60 ]; then printf '%d s' "$1"; else printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); fi
}

# Runs a command under a heading and says how long it took; returns its status.
# step TITLE COMMAND...
step() {
    local title=$1 began=$SECONDS status=0
    shift
    printf '\n%s== %s%s\n' "$bold" "$title" "$plain"
    "$@" || status=$?
    if [ "$status" -eq 0 ]; then
        printf '   %s: %s\n' "$title" "$(duration $((SECONDS - began)))"
    else
        printf '   %s: failed after %s\n' "$title" "$(duration $((SECONDS - began)))"
    fi
    return "$status"
}

# Takes over the Rust toolchain that `scripts/setup` chose. Without it, the one in the path is used.
use_toolchain() {
    if [ -f target/toolchain.sh ]; then
        # shellcheck source=/dev/null
        . target/toolchain.sh
    fi
    build_the_same_everywhere
}

# Keeps what is this machine's own out of what is built: in the lab every instruction counts, and a program with other paths
# in it is another one. Cargo joins these flags with those of .cargo/config.toml, and splits them at spaces.
build_the_same_everywhere() {
    local cargo=${CARGO_HOME:-$HOME/.cargo}
    case $PWD$cargo in *[[:space:]]*) return ;; esac
    local flags="--remap-path-prefix=$PWD=. --remap-path-prefix=$cargo=cargo"
    # It is a hash of debug information, too, in which C libraries name their directories.
    flags+=" -C link-arg=-Wl,--build-id=none"
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS=$flags
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS=$flags
}

# Prints the paths of the crates' test harnesses, which are also what runs in the lab's guests. With everything else that
# tests need (the programs and the stages' own programs), they are built first where they are not.
harnesses() {
    cargo build --workspace --all-targets --locked --message-format=json-render-diagnostics |
        sed -n 's/.*"profile":{[^}]*"test":true[^}]*}.*"executable":"\([^"]*\)".*/\1/p'
}

# What Debian calls the machines that the program is for: amd64, or arm64 by a cross compiler (`make build ARCH=arm64`).
architecture=${TARN_ARCH:-amd64}
# What runs the program here.
# shellcheck disable=SC2034
emulator=()
# shellcheck disable=SC2034
case $architecture in
    amd64) triple=x86_64-unknown-linux-gnu ;;
    arm64) triple=aarch64-unknown-linux-gnu ;;
    *) die "unknown architecture $architecture: amd64 or arm64" ;;
esac
# Whether the program does not run here by itself.
is_foreign() { [ "${triple%%-*}" != "$(uname -m)" ]; }
# shellcheck disable=SC2034
if is_foreign; then emulator=("qemu-${triple%%-*}"); fi

# The lab's guests are x86-64, and run the program that is built.
for_amd64_only() { [ "$architecture" = amd64 ] || die "only for amd64: the lab's guests are x86-64"; }

# The release binary, where cargo puts it.
# shellcheck disable=SC2034
binary=target/$triple/release/tarn

# Where cargo puts what tests need.
# shellcheck disable=SC2034
programs=target/x86_64-unknown-linux-gnu/debug

# The version of tarn.
# shellcheck disable=SC2034
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

# Puts the sources of the stages' kernel modules where kbuild builds all of them, a directory a stage.
# module_sources DIRECTORY
module_sources() {
    local kmod stage
    install -d "$1"
    : >"$1/Kbuild"
    for kmod in stages/*/kmod; do
        stage=$(basename "$(dirname "$kmod")")
        install -d "$1/$stage"
        cp -r "$kmod"/. "$kmod/../uapi.h" "$1/$stage"
        printf 'obj-m += %s/\n' "$stage" >>"$1/Kbuild"
    done
}

# Makes the lab's images. A user whom the host lets make no user namespaces (Ubuntu 24.04, by AppArmor) needs root for
# this one step; the images are the user's all the same.
# lab_images PROGRAM OPTION...
lab_images() {
    local program=$1 status=0 cache=${XDG_CACHE_HOME:-$HOME/.cache}
    shift
    "$program" lab image "$@" || status=$?
    if [ "$status" -ne 3 ] || [ "$(id -u)" -eq 0 ] || ! command -v sudo >/dev/null; then return "$status"; fi
    say "once more, by sudo:"
    mkdir -p "$cache/tarn"
    status=0
    sudo env XDG_CACHE_HOME="$cache" "$program" lab image "$@" || status=$?
    sudo chown -R "$(id -u):$(id -g)" "$cache/tarn"
    return "$status"
}
