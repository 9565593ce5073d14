#!/bin/sh
# Installs the Debian packages that Howdah needs, for the release's own PHP. It installs only packages that are missing.
# It neither builds Howdah nor installs Rust.
#
#   scripts/setup-debian.sh build      for compiling: PHP and its headers, a C compiler
#   scripts/setup-debian.sh demo       build, and the extensions that the demo site uses
#   scripts/setup-debian.sh test       demo, and rival servers, MariaDB and the real applications of the test suite
#   scripts/setup-debian.sh packages   build, and the tools that build Debian packages
#   scripts/setup-debian.sh image      the tools that build and test a container image of these packages
#   scripts/setup-debian.sh --list GROUP    print the packages, one per line
#
# The script can be run repeatedly. If no package is missing, it needs neither root nor the network. Otherwise it needs
# root or sudo.
#
# Several of these packages contain a daemon (nginx, apache2, php-fpm, MariaDB, PostgreSQL), of which the tests only use
# private instances on loopback. The script therefore starts no daemon: while apt runs, a policy-rc.d (invoke-rc.d(8))
# forbids starting services. An existing policy-rc.d is restored afterwards, even after a failure. Services that this run
# has installed are not enabled for the next boot either.
set -eu

# Debian 12 is the reference: all measurements and all tests run on it.
release=$(. /etc/os-release 2>/dev/null && echo "${ID-} ${VERSION_ID-}") || release=
case $release in
    "debian 12") PHP=8.2 theme=twentytwentyone ;;
    "debian 13") PHP=8.4 theme=twentytwentyfive ;;
    *)
        # The version that php-defaults chooses, if apt knows it already.
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
  php-symfony-form php-symfony-validator php-symfony-security-csrf php-symfony-mime composer
  wrk prometheus rsyslog
  chromium nodejs"

# To build Debian packages, rpm packages and a repository, and to test them in fresh systems.
packaging="dpkg-dev debhelper lintian rpm reprepro gpg debootstrap"

# To build a container image, to read it with other programs, and to run it with a real application.
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
    restore_policy # in case an earlier run was killed
    if [ -e "$policy" ]; then
        mv "$policy" "$saved"
    fi
    trap restore_policy EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    printf '#!/bin/sh\n# %s: this file exists only while packages are being installed\nexit 101\n' "$mark" >"$policy"
    chmod 755 "$policy"
}

[ "${1-}" = --list ] && { packages_of "${2-test}" | tr ' ' '\n'; exit 0; }
[ $# -le 1 ] || die "expected one group: build, demo, test, packages or image"
group=${1-test}
packages=$(packages_of "$group")

command -v dpkg-query >/dev/null 2>&1 \
    || die "this system is not Debian, because it has no dpkg-query. Install the packages that '$0 --list $group' prints by hand"

missing=$(missing_of $packages)
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 \
        || die "these packages are missing: $(echo $missing). As root, run: $0 $group"
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
# Tries the existing package lists first, and fetches new ones only if that fails.
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
[ -z "$still" ] || die "apt-get succeeded, but these packages are still missing: $(echo $still)"
say "done: '$group' is complete"
