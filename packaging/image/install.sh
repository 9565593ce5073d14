#!/bin/sh
# Makes a root of the image out of one of Debian: run in it, as root, by packaging/image/Containerfile and by
# scripts/image.sh. Expects this directory, and Howdah's packages in the one named.
#
#   install.sh PACKAGES
set -eu
here=$(dirname "$0")
packages=$1
export DEBIAN_FRONTEND=noninteractive

# The series of PHP is that of the package howdah-phpX.Y.
php=$(basename "$packages"/howdah-php[0-9].[0-9]_*.deb)
php=${php#howdah-php}
php=${php%%_*}

# What the known applications need.
extensions="bcmath curl gd intl mbstring mysql opcache pgsql readline sqlite3 xml zip"
apt-get update -q
apt-get install -y -q --no-install-recommends ca-certificates \
    "$packages"/howdah_*.deb "$packages/howdah-php${php}_"*.deb \
    $(for extension in $extensions; do echo "php$php-$extension"; done)

install -m 644 "$here/howdah.toml" /etc/howdah/howdah.toml
install -m 644 "$here/php.ini" "/etc/php/$php/embed/conf.d/90-howdah.ini"
# Root's: a server that runs as another user reads it, and its scripts change nothing of it.
install -d /var/cache/howdah/opcache
install -d /app

apt-get clean
# Nothing of this build is left; nor what a container has no use for.
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
    /var/lib/dpkg/*-old /var/log/*.log /var/log/apt /var/log/howdah /var/www /etc/systemd /etc/logrotate.d
find /usr/share/doc -mindepth 1 ! -name copyright ! -type d -delete
rm -rf /usr/share/man /usr/share/locale /usr/share/info
