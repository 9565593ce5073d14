#!/bin/sh
# Makes a signed apt repository of packages: a directory that any web server can serve.
#
#   scripts/repository.sh DIRECTORY URL PACKAGES...
#
# DIRECTORY   where it is, or is to be: packages are added to those that it has
# URL         where it will be served: https://packages.example.org/howdah
# PACKAGES    directories that scripts/packages.sh has made, one of each Debian release
#
# It is signed with the key SIGN_WITH (an id or an address of gpg's), else with gpg's default key. Needs reprepro
# and gpg. Each release gets a file RELEASE.sources, with the public key in it, which is all that apt needs:
#
#   curl -fsSL URL/bookworm.sources | sudo tee /etc/apt/sources.list.d/howdah.sources && sudo apt update
set -eu

die() { echo "repository: $*" >&2; exit 1; }

[ $# -ge 3 ] || die "use: $0 DIRECTORY URL PACKAGES..."
for program in reprepro gpg; do
    command -v $program >/dev/null || die "$program is missing: apt install $program"
done
directory=$(realpath -m "$1")
url=${2%/}
shift 2
key=$(gpg --batch --with-colons --list-secret-keys ${SIGN_WITH+"$SIGN_WITH"} 2>/dev/null \
    | awk -F: '$1 == "fpr" { print $10; exit }')
[ -n "$key" ] || die "gpg has no secret key${SIGN_WITH+ $SIGN_WITH}: make one (gpg --quick-generate-key), or name it by SIGN_WITH"

# releases: those that are there, and those of the packages.
mkdir -p "$directory/conf"
releases=$(sed -n 's/^Codename: //p' "$directory/conf/distributions" 2>/dev/null || true)
release_of() { dpkg-deb -f "$1" Version | sed -n 's/.*~\([a-z]*\)$/\1/p'; }
for packages; do
    for package in "$packages"/*.deb; do
        [ -e "$package" ] || die "there is no package in $packages: run make packages"
        release=$(release_of "$package")
        [ -n "$release" ] || die "$package names no release of Debian: it is not of scripts/packages.sh"
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
        # Debug symbols are found by debuginfod or by hand: apt's index stays small.
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
# What a web server need not show.
printf 'Served are dists, pool, *.sources and howdah.asc; conf and db are reprepro'"'"'s.\n' >"$directory/README"
cat <<EOF
$directory is ready for $url. To install from it:

  . /etc/os-release
  curl -fsSL $url/\$VERSION_CODENAME.sources | sudo tee /etc/apt/sources.list.d/howdah.sources
  sudo apt update && sudo apt install howdah
EOF
