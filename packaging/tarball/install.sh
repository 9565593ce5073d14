#!/bin/sh
# Installs Howdah from the directory of this script: the program to PREFIX/bin, and the libraries that it loads into PHP
# to PREFIX/lib/howdah. PREFIX is /usr/local if it is not set. The script asks no questions, starts no
# service and needs no network. To remove Howdah, delete PREFIX/bin/howdah and PREFIX/lib/howdah.
set -eu
cd "$(dirname "$0")"
prefix=${PREFIX:-/usr/local}

mkdir -p "$prefix/bin" "$prefix/lib/howdah"
for file in bin/howdah lib/howdah/*; do
    # The file of a running program cannot be written to, but it can be replaced.
    cp "$file" "$prefix/$file.new"
    mv -f "$prefix/$file.new" "$prefix/$file"
done

# Prints the version and the PHP that Howdah has found, or which package to install.
"$prefix/bin/howdah" version || true
