#!/bin/sh
# Compiles for 64-bit ARM on a machine with another processor, and runs the programs there with QEMU, in a root that has
# the PHP of Debian 12 for arm64.
#
#   scripts/arm64.sh                          compile the programs, and run the tests that this script names
#   scripts/arm64.sh COMMAND [ARGUMENT...]    run a command in whose environment cargo does the same
#   scripts/arm64.sh cargo test -p howdah-proto
#   scripts/in-root.sh 8.2-arm64 target/aarch64-unknown-linux-gnu/debug/howdah serve DIRECTORY
#
# The script runs as root on Debian 12 and installs what it needs: the compilers, QEMU, and the root, which takes a
# quarter of an hour the first time because QEMU runs the installation of each package.
set -eu
cd "$(dirname "$0")/.."

root=8.2-arm64
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
for package in gcc-aarch64-linux-gnu libc6-dev-arm64-cross; do
    [ -d "/usr/share/doc/$package" ] || apt-get install -y -q --no-install-recommends "$package"
done
rustup target add aarch64-unknown-linux-gnu
scripts/php-roots.sh $root

# libcrypt is the one library that the programs need beside glibc. The cross compiler has none, so the root's is linked.
mkdir -p "$target/arm64-libraries"
cp -L "$target/php-roots/$root/usr/lib/aarch64-linux-gnu/libcrypt.so.1" "$target/arm64-libraries/libcrypt.so"

export CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-L native=$target/arm64-libraries"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/scripts/in-root.sh $root"
export PHP_CONFIG="$target/php-roots/$root/php-config"
export SYSROOT="$target/php-roots/$root" # for packaging/debian/rules
[ $# -eq 0 ] || exec "$@"

# Skipped, in this order: QEMU's own memory, the titles of processes, a signal that QEMU does not deliver, and a time limit
# that QEMU exceeds (docs/systems.md).
export HOWDAH_PHP=/usr/bin/php-cgi8.2
cargo test --workspace --test architecture --test exchange --test answers --test bodies --test opcache \
    --test processes --test worker --test swoole -- --test-threads=2 \
    --skip large_response_does_not_grow_the_child --skip process_titles_name_the_pool \
    --skip zygote_kill_ends_idle_children --skip boot_that_hangs_is_ended_by_name
unset HOWDAH_PHP
cargo test --workspace --test http -- --test-threads=2 semantics
