#!/bin/sh
# Builds the library for a PHP, and writes it under the name by which `howdah` finds it.
#
#   PHP_CONFIG=php-config8.4 scripts/php-library.sh [DIRECTORY]    to target/php-libraries, or there
#   scripts/php-library.sh --name LIBRARY                          print the name of a library that is built
#
# PHP_HEADERS names the directory of PHP's headers where there is no php-config. PROFILE=dev builds without
# optimisation. TARGET=x86_64-unknown-linux-musl builds for musl on a machine with glibc: it needs musl-gcc (Debian:
# musl-tools), `rustup target add` of this target, and the headers of a PHP that was built with musl. On Alpine itself,
# TARGET is not needed.
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
# A directory of its own: the library of the checkout stays that of the checkout's PHP.
work=$target/php-library-work
if [ -n "${TARGET-}" ]; then
    directory=$TARGET/$directory
    set -- --target "$TARGET"
else
    set --
fi
case ${TARGET-} in
*-linux-musl)
    # Without a libgcc_s of musl's, Rust's own unwinder is linked in place of it.
    mkdir -p "$work/musl"
    echo "INPUT($(rustc --print target-libdir --target "$TARGET")/self-contained/libunwind.a)" >"$work/musl/libgcc_s.so"
    # musl's Rust programs are static by default, and a static program's library cannot be loaded.
    export RUSTFLAGS="${RUSTFLAGS-} -C target-feature=-crt-static -C linker=musl-gcc -L native=$work/musl"
    export "CC_$(echo "$TARGET" | tr - _)=musl-gcc"
    ;;
esac
cargo build --quiet --profile "$profile" -p howdah-php --lib --target-dir "$work" "$@"
library=$work/$directory/deps/libhowdah_php.so
mkdir -p "$out"
name=$(name_of "$library")
cp "$library" "$out/$name"
echo "$out/$name"
