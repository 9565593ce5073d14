#!/bin/sh
# Creates a signed apt repository from packages: a directory that any web server can serve.
#
#   scripts/repository.sh DIRECTORY URL PACKAGES...
#
# DIRECTORY   the directory of the repository; if it exists, the packages are added to it
# URL         the URL at which it will be served, such as https://packages.example.org/howdah
# PACKAGES    directories that scripts/packages.sh has written, one for each Debian release
#
# The variable SIGN_WITH names the key that signs the repository, by its id or e-mail address in gpg; without it, gpg's
# default key signs. The script needs reprepro and gpg. For each release it writes a file RELEASE.sources, which contains
# the public key and is all that apt needs:
#
#   curl -fsSL URL/bookworm.sources | sudo tee /etc/apt/sources.list.d/howdah.sources && sudo apt update
set -eu

die() { echo "repository: $*" >&2; exit 1; }

[ $# -ge 3 ] || die "usage: $0 DIRECTORY URL PACKAGES..."
for program in reprepro gpg; do
    command -v $program >/dev/null || die "$program is missing; to install it, run: apt install $program"
done
directory=$(realpath -m "$1")
url=${2%/}
shift 2
key=$(gpg --batch --with-colons --list-secret-keys ${SIGN_WITH+"$SIGN_WITH"} 2>/dev/null \
    | awk -F: '$1 == "fpr" { print $10; exit }')
[ -n "$key" ] || die "gpg has no secret key${SIGN_WITH+ $SIGN_WITH}: create one (gpg --quick-generate-key), or name another key with SIGN_WITH"

# The releases of the existing repository, and those of the new packages.
mkdir -p "$directory/conf"
releases=$(sed -n 's/^Codename: //p' "$directory/conf/distributions" 2>/dev/null || true)
release_of() { dpkg-deb -f "$1" Version | sed -n 's/.*~\([a-z]*\)$/\1/p'; }
for packages; do
    for package in "$packages"/*.deb; do
        [ -e "$package" ] || die "there are no packages in $packages; to build them, run: make packages"
        release=$(release_of "$package")
        [ -n "$release" ] || die "the version of $package does not end in a Debian release, so scripts/packages.sh has not built this package"
        case " $(echo $releases) " in *" $release "*) ;; *) releases="$releases $release" ;; esac
    done
done
for release in $releases; do
    cat <<EOF
Origin: Howdah
Label: Howdah
Codename: $release
Architectures: amd64 arm64
Components: main
Description: Howdah PHP application server for Debian $release
SignWith: $key

EOF
done >"$directory/conf/distributions"

for packages; do
    for package in "$packages"/*.deb; do
        # Packages with debug symbols are omitted, to keep apt's index small. debuginfod can serve them instead.
        case $package in *-dbgsym_*) continue ;; esac
        reprepro --silent -b "$directory" includedeb "$(release_of "$package")" "$package"
    done
done

public=$(gpg --batch --armor --export "$key" | sed 's/^$/./; s/^/ /')
for release in $releases; do
    cat >"$directory/$release.sources" <<EOF
Types: deb
URIs: $url
Suites: $release
Components: main
Signed-By:
$public
EOF
done
gpg --batch --armor --export "$key" >"$directory/howdah.asc"
# Tells administrators which files have to be served.
printf 'Serve dists, pool, *.sources and howdah.asc. Only reprepro needs conf and db.\n' >"$directory/README"
cat <<EOF
$directory is ready for $url. To install from it:

  . /etc/os-release
  curl -fsSL $url/\$VERSION_CODENAME.sources | sudo tee /etc/apt/sources.list.d/howdah.sources
  sudo apt update && sudo apt install howdah
EOF
