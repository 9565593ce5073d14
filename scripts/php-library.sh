#!/bin/sh
# Builds the library for a PHP, and writes it under the name by which `howdah` finds it.
#
#   PHP_CONFIG=php-config8.4 scripts/php-library.sh [DIRECTORY]    to target/php-libraries, or there
#   scripts/php-library.sh --name LIBRARY                          print the name for a library that has been built
#
# PHP_HEADERS names the directory of PHP's headers where there is no php-config. PROFILE=dev builds without
# optimisation. CARGO_BUILD_TARGET=x86_64-unknown-linux-musl builds for musl on a machine with glibc. This needs
# musl-gcc (Debian: musl-tools), `rustup target add` of this target, and the headers of a PHP that was built with musl.
# On Alpine Linux itself, leave CARGO_BUILD_TARGET unset.
set -eu
cd "$(dirname "$0")/.."

# A library contains its name, which `--version` prints.
name_of() { grep -aom 1 'howdah-php-[0-9]\{8\}-[a-z-]*\.so' "$1" | head -n 1; }

if [ "${1-}" = --name ]; then
    name_of "$2"
    exit
fi
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$(realpath -m "${1:-$target/php-libraries}")
profile=${PROFILE:-release}
directory=$profile
[ "$profile" != dev ] || directory=debug
# Builds in a separate directory, so that the library in the checkout's target directory stays the one for its own PHP.
work=$target/php-library-work
triple=${CARGO_BUILD_TARGET-}
case $triple in
*-linux-musl)
    # musl has no libgcc_s, so Rust's own unwinder is linked instead.
    mkdir -p "$work/musl"
    echo "INPUT($(rustc --print target-libdir --target "$triple")/self-contained/libunwind.a)" >"$work/musl/libgcc_s.so"
    name=$(echo "$triple" | tr - _)
    upper=$(echo "$name" | tr a-z A-Z)
    export "CC_$name=musl-gcc" "CARGO_TARGET_${upper}_LINKER=musl-gcc"
    export "CARGO_TARGET_${upper}_RUSTFLAGS=-L native=$work/musl"
    ;;
esac
cargo build --quiet --profile "$profile" -p howdah-php --lib --target-dir "$work"
library=$work/${triple:+$triple/}$directory/deps/libhowdah_php.so
mkdir -p "$out"
name=$(name_of "$library")
cp "$library" "$out/$name"
echo "$out/$name"
