#!/bin/sh
# Builds the library for a PHP, and writes it under the name by which `howdah` finds it.
#
#   PHP_CONFIG=php-config8.4 scripts/php-library.sh [DIRECTORY]    to target/php-libraries, or there
#   scripts/php-library.sh --name LIBRARY                          print the name of a library that is built
#
# PHP_HEADERS names the directory of PHP's headers where there is no php-config. PROFILE=dev builds without
# optimisation.
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
cargo build --quiet --profile "$profile" -p howdah-php --lib --target-dir "$target/php-library-work"
library=$target/php-library-work/$directory/deps/libhowdah_php.so
mkdir -p "$out"
name=$(name_of "$library")
cp "$library" "$out/$name"
echo "$out/$name"
