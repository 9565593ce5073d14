#!/bin/sh
# Unpacks the programs and libraries of Howdah's package into a directory, at the paths where `howdah` looks for them.
#
#   payload.sh PACKAGES DIRECTORY
set -eu
packages=$1
directory=$2
dpkg-deb -x "$packages"/howdah_*.deb "$directory"
find "$directory" -mindepth 1 -maxdepth 1 ! -name usr -exec rm -rf {} +
rm -rf "$directory"/usr/share "$directory"/usr/lib/systemd "$directory"/usr/lib/sysusers.d "$directory"/usr/lib/tmpfiles.d
