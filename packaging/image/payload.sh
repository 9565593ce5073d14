#!/bin/sh
# Unpacks Howdah's package as a payload: the programs and libraries, where `howdah` looks for them.
#
#   payload.sh PACKAGES DIRECTORY
set -eu
packages=$1
directory=$2
dpkg-deb -x "$packages"/howdah_*.deb "$directory"
find "$directory" -mindepth 1 -maxdepth 1 ! -name usr -exec rm -rf {} +
rm -rf "$directory"/usr/share "$directory"/usr/lib/systemd "$directory"/usr/lib/sysusers.d "$directory"/usr/lib/tmpfiles.d
