#!/bin/sh
# Turns a Debian root into the root of the image. packaging/image/Containerfile and scripts/image.sh run this script in
# the root, as user root. It needs the other files of this directory, and Howdah's packages in the directory PACKAGES.
#
#   install.sh PACKAGES
set -eu
here=$(dirname "$0")
packages=$1
export DEBIAN_FRONTEND=noninteractive

# The extensions that the known applications need.
extensions="bcmath curl gd intl mbstring mysql opcache pgsql readline sqlite3 xml zip"
apt-get update -q
# The release's own PHP: php-cgi runs the sites, and php-cli runs jobs and `howdah php`.
php=$(apt-cache depends php-cgi | sed -n 's/.*Depends: php\([0-9.]*\)-cgi.*/\1/p' | head -n 1)
apt-get install -y -q --no-install-recommends ca-certificates \
    "$packages"/howdah_*.deb "php$php-cgi" "php$php-cli" \
    $(for extension in $extensions; do echo "php$php-$extension"; done)

install -m 644 "$here/howdah.toml" /etc/howdah/howdah.toml
for kind in cgi cli; do
    install -m 644 "$here/php.ini" "/etc/php/$php/$kind/conf.d/90-howdah.ini"
done
# Root owns this directory. The server runs as another user, so its scripts can read the directory but not change it.
install -d /var/cache/howdah/opcache
install -d /app

apt-get clean
# Removes the remains of the build, and files that a container does not need.
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
    /var/lib/dpkg/*-old /var/log/*.log /var/log/apt /var/log/howdah /var/www /etc/systemd /etc/logrotate.d \
    /etc/fail2ban
find /usr/share/doc -mindepth 1 ! -name copyright ! -type d -delete
rm -rf /usr/share/man /usr/share/locale /usr/share/info
