#!/bin/sh
# Unpacks Howdah's packages as a payload: the programs, where `howdah` looks for them.
#
#   payload.sh PACKAGES DIRECTORY
set -eu
packages=$1
directory=$2
for package in "$packages"/howdah_*.deb "$packages"/howdah-php[0-9].[0-9]_*.deb; do
    dpkg-deb -x "$package" "$directory"
done
# Without dpkg's alternatives.
ln -sf "$(basename "$directory"/usr/lib/howdah/howdah-php[0-9]*)" "$directory/usr/lib/howdah/howdah-php"
find "$directory" -mindepth 1 -maxdepth 1 ! -name usr -exec rm -rf {} +
rm -rf "$directory"/usr/share "$directory"/usr/lib/systemd "$directory"/usr/lib/sysusers.d "$directory"/usr/lib/tmpfiles.d
