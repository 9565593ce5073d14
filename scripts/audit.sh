#!/bin/sh
# Checks the dependencies of the server, the tools and the fuzz targets: whether each is used (cargo-machete), and
# licences, advisories, duplicates and sources (cargo-deny, configured by deny.toml).
#
#   scripts/audit.sh [CHECK...]     advisories, bans, licenses, sources; by default all
#
# `advisories` needs the network, because cargo-deny fetches the database from GitHub. The script installs both programs
# in these versions to $HOWDAH_TOOLS (by default ~/.cache/howdah) unless they are already installed.
set -eu
cd "$(dirname "$0")/.."

machete=0.9.2
deny=0.20.2
cargo=${CARGO:-cargo}
tools=${HOWDAH_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/howdah}
[ $# -gt 0 ] || set -- advisories bans licenses sources

# This file is written last, so that an interrupted installation begins again.
installed=$tools/installed-cargo-machete-$machete-cargo-deny-$deny
if ! [ -e "$installed" ]; then
    echo "audit: installing cargo-machete $machete and cargo-deny $deny to $tools (some minutes)"
    mkdir -p "$tools"
    # Without CARGO_TARGET_DIR, because cargo would compile them into the project's own target directory.
    env -u CARGO_TARGET_DIR "$cargo" install --quiet --locked --root "$tools" "cargo-machete@$machete" "cargo-deny@$deny"
    touch "$installed"
fi

for manifest in Cargo.toml tools/Cargo.toml fuzz/Cargo.toml; do
    echo "audit: cargo-deny, $manifest"
    # The three lock files share one list of duplicates and exceptions, so none of them contains every entry.
    "$tools/bin/cargo-deny" --locked --manifest-path "$manifest" --config deny.toml check \
        -A unmatched-skip -A unnecessary-skip -A license-exception-not-encountered "$@"
done
# With cargo's metadata, because the library of a crate may have another name (`md-5` is `md5`). They could change a
# lock file, which cargo-deny has just found to be up to date.
"$tools/bin/cargo-machete" --skip-target-dir --with-metadata
