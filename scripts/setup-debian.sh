#!/bin/sh
# Installs the Debian packages Howdah needs, for the release's own PHP. It installs what is missing and
# nothing else; it does not build Howdah and does not install Rust.
#
#   scripts/setup-debian.sh build   to compile: PHP and its headers, a C compiler
#   scripts/setup-debian.sh demo    build + the extensions the demo site uses
#   scripts/setup-debian.sh test    demo + rival servers, MariaDB and the real
#                                   applications the test suite drives
#   scripts/setup-debian.sh packages   build + what makes Debian packages
#   scripts/setup-debian.sh image   what makes and tests a container image of them
#   scripts/setup-debian.sh --list GROUP    print the packages, one per line
#
# Safe to run again: with nothing missing it asks dpkg once and leaves (no root,
# no network). Otherwise it needs root, or sudo.
#
# No daemon is started: several of these packages bring one (nginx, apache2,
# php-fpm, MariaDB, PostgreSQL), the tests only use private copies of them on loopback. While
# apt runs, a policy-rc.d (invoke-rc.d(8)) forbids starting services; what was
# there before is put back, also after a failure. A service that this run
# installed is not enabled for the next boot either.
set -eu

# Debian 12 is the reference: what is measured and what every test runs on.
release=$(. /etc/os-release 2>/dev/null && echo "${ID-} ${VERSION_ID-}") || release=
case $release in
    "debian 12") PHP=8.2 theme=twentytwentyone ;;
    "debian 13") PHP=8.4 theme=twentytwentyfive ;;
    *)
        # php-defaults' choice, as far as apt knows it already.
        PHP=$(apt-cache depends php-dev 2>/dev/null | sed -n 's/.*Depends: php\([0-9.]*\)-dev.*/\1/p' | head -n 1)
        PHP=${PHP:-8.2} theme=twentytwentyfive
        ;;
esac

build="gcc libc6-dev make pkg-config python3 php$PHP-dev"

# SQLite and GD for the guestbook's entries and thumbnails, cli to seed it.
demo="php$PHP-cli php$PHP-sqlite3 php$PHP-gd php$PHP-mbstring"

# Rivals; then databases and extensions; then applications.
test="curl openssl pebble strace valgrind python3 python3-venv python3-jsonschema systemd
  nginx-light php$PHP-fpm php$PHP-cgi apache2 libapache2-mod-php$PHP
  libapache2-mod-fcgid libfcgi-perl varnish haproxy apache2-utils
  mariadb-server redis-server php-redis faketime iproute2 php$PHP-mysql postgresql php$PHP-pgsql php$PHP-xml php$PHP-curl php$PHP-intl
  wordpress wordpress-theme-$theme
  mediawiki
  phpmyadmin dbconfig-no-thanks
  php-symfony-framework-bundle php-symfony-twig-bundle php-symfony-security-bundle
  php-symfony-messenger php-symfony-redis-messenger php-laravel-framework php-psr-simple-cache
  php-symfony-form php-symfony-validator php-symfony-security-csrf php-symfony-mime
  wrk prometheus rsyslog
  chromium nodejs"

# To make Debian packages, rpm and a repository, and to try them in fresh systems.
packaging="dpkg-dev debhelper lintian rpm reprepro gpg debootstrap"

# To make a container image, to read it with other programs, and to run it with a real application.
image="mmdebstrap skopeo umoci python3 curl mariadb-server wordpress wordpress-theme-$theme"

services="nginx apache2 mariadb redis-server postgresql php$PHP-fpm varnish varnishncsa haproxy prometheus rsyslog"

policy=/usr/sbin/policy-rc.d
saved=$policy.before-howdah
mark="howdah setup-debian.sh"

say() { echo "setup-debian: $*"; }
die() { echo "setup-debian: $*" >&2; exit 1; }

packages_of() {
    case $1 in
        build) echo $build ;;
        demo) echo $build $demo ;;
        test) echo $build $demo $test ;;
        packages) echo $build $packaging ;;
        image) echo $image ;;
        *) die "unknown group '$1': expected build, demo, test, packages or image" ;;
    esac
}

# The packages of "$@" that dpkg does not have fully installed.
missing_of() {
    installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null \
        | sed -n 's/^ii  *//p' | tr '\n' ' ') || true
    for package in "$@"; do
        case " $installed " in
            *" $package "*) ;;
            *) echo "$package" ;;
        esac
    done
}

restore_policy() {
    if [ -e "$saved" ]; then
        mv -f "$saved" "$policy"
    elif [ -e "$policy" ] && grep -q "$mark" "$policy"; then
        rm -f "$policy"
    fi
}

forbid_starting_services() {
    restore_policy # an earlier run was killed half-way
    if [ -e "$policy" ]; then
        mv "$policy" "$saved"
    fi
    trap restore_policy EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    printf '#!/bin/sh\n# %s: put here while packages are installed\nexit 101\n' "$mark" >"$policy"
    chmod 755 "$policy"
}

[ "${1-}" = --list ] && { packages_of "${2-test}" | tr ' ' '\n'; exit 0; }
[ $# -le 1 ] || die "one group at a time: build, demo, test, packages or image"
group=${1-test}
packages=$(packages_of "$group")

command -v dpkg-query >/dev/null 2>&1 \
    || die "this is not Debian (no dpkg-query). Install by hand what '$0 --list $group' prints"

missing=$(missing_of $packages)
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 \
        || die "missing: $(echo $missing). Run this as root: $0 $group"
    exec sudo -- "$0" "$group"
fi

say "installing for '$group': $(echo $missing)"
new_services=
for service in $services; do
    [ -e "/lib/systemd/system/$service.service" ] || new_services="$new_services $service"
done

forbid_starting_services
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -q --no-install-recommends "$@" </dev/null; }
# Try with the package lists at hand; fetch new ones only if that fails.
if ! apt-get install -s -qq --no-install-recommends $missing >/dev/null 2>&1; then
    apt-get update -q </dev/null || die "apt-get update failed: check the network and /etc/apt/sources.list"
fi
if ! install $missing; then
    say "trying once more with fresh package lists"
    apt-get update -q </dev/null || die "apt-get update failed: check the network and /etc/apt/sources.list"
    install $missing || die "apt-get could not install: $(echo $missing)"
fi
apt-get clean

for service in $new_services; do
    if [ -e "/lib/systemd/system/$service.service" ] && command -v systemctl >/dev/null 2>&1; then
        systemctl --quiet disable "$service.service" >/dev/null 2>&1 \
            || say "note: could not disable $service.service; it may start at the next boot"
    fi
done

still=$(missing_of $packages)
[ -z "$still" ] || die "still missing after apt-get: $(echo $still)"
say "done: '$group' is complete"
