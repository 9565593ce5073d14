#!/bin/sh
# Runs a command in a root that scripts/php-roots.sh has made, in the same working directory as here. The checkout, its
# target directory and the Rust toolchain are mounted at the same paths. The mounts end with the command.
#
#   scripts/in-root.sh NAME COMMAND [ARGUMENT...]
#   scripts/in-root.sh debian-13 env PHP_CONFIG=php-config8.4 scripts/run-tests.py    the test suite on Debian 13
#
# The programs that scripts/setup-tools.sh has installed are there as well.
#
# If PHP_CONFIG is set, cargo builds howdah-php again for the PHP of the root. The script must run as the user root.
set -eu
root=$1
shift
directory=$PWD
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
[ "$(id -u)" = 0 ] || {
    echo "in-root: the command runs in another root directory, so run this script as the user root" >&2
    exit 1
}
exec unshare --mount --propagation private sh -euc '
    root=$1 directory=$2
    shift 2
    # Programs in the root may change the propagation of /, which is only possible if / is a mount.
    mount --bind "$root" "$root"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    while [ "$1" != -- ]; do
        if [ -d "$1" ]; then
            mkdir -p "$root$1"
            mount --bind "$1" "$root$1"
        fi
        shift
    done
    shift
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" env -C "$directory" "$@"
' in-root "$target/php-roots/$root" "$directory" "$PWD" "$target" "${CARGO_HOME:-$HOME/.cargo}" \
    "${RUSTUP_HOME:-$HOME/.rustup}" "${HOWDAH_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/howdah}" -- \
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" "$@"
