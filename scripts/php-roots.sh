#!/bin/sh
# Makes the PHPs that howdah-php must run in, other than this release's own: a directory target/php-roots/NAME for
# each, with php, php-cgi, php-fpm, and the extensions and headers that are needed. scripts/test-php-roots.sh uses them.
#
#   scripts/php-roots.sh [NAME...]    make these; by default all
#   scripts/php-roots.sh --list       print the names, one per line
#
#   8.2 8.3 8.4 8.5 8.6      the PHP of a distribution, in a root for chroot(8)
#   8.3-zts 8.5-zts          a thread-safe PHP, compiled from the source package of such a distribution: NAME/opt/php
#   debian-13                a whole Debian 13, with everything that the test suite needs; only made if you name it
#   8.2-arm64                the PHP of Debian 12 for 64-bit ARM, whose programs QEMU runs; only made if you name it
#   amazon-2-8.3 amazon-2023-8.4 alma-9-8.5
#                            the PHP of another distribution, from npm: NAME/native/php, its extensions in NAME/conf.d
#
# scripts/in-root.sh runs a command in a root of the first kind, in debian-13 and in 8.2-arm64, for which scripts/arm64.sh
# compiles.
#
# amazon-2-8.3 lacks the extension posix, so some tests of howdah-php fail.
#
# The PHPs of NAME-zts and of the last kind run without chroot. Set PHP_CONFIG to NAME/php-config, which prints the paths of
# the headers on this machine. The packages from npm contain no headers, so the headers in the root of the same series are
# used. They fit if the API and the build are the same, which the script checks.
#
# The script can be run repeatedly, because it skips roots that are complete. It runs as root on Debian 12, installs the
# packages that it needs, and fetches the PHPs from the archives of Debian and Ubuntu and from npm.
set -eu
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
roots=$target/php-roots
keys=$roots/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg
debian=http://deb.debian.org/debian
ubuntu=http://archive.ubuntu.com/ubuntu
names="8.2 8.3 8.4 8.5 8.6 8.3-zts 8.5-zts amazon-2-8.3 amazon-2023-8.4 alma-9-8.5"
export DEBIAN_FRONTEND=noninteractive

say() { echo "php-roots: $(date +%T) $*"; }
die() {
    echo "php-roots: $*" >&2
    exit 1
}
# Runs a command with its output in the log of the root, and shows the end of the log if it fails: logged COMMAND...
logged() {
    "$@" >>"$roots/$name.log" 2>&1 </dev/null || {
        tail "$roots/$name.log" >&2
        die "$name: this command failed: $*"
    }
}

# Installs the packages that are missing: need PACKAGE...
need() {
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] && continue
        say "installing $package"
        apt-get install -y -q --no-install-recommends "$package" >>"$roots/$name.log" 2>&1 </dev/null && continue
        logged apt-get update -q
        logged apt-get install -y -q --no-install-recommends "$package"
    done
}

# Prints the lines of sources.list for a release: sources_of RELEASE deb|deb-src
sources_of() {
    case $1 in
        bookworm | trixie) printf "$2 $debian%s main\n" " $1" " $1-updates" "-security $1-security" ;;
        experimental) printf "$2 $debian %s main\n" unstable experimental ;;
        *) printf "$2 [signed-by=$keys] $ubuntu %s main universe\n" "$1" "$1-updates" "$1-security" ;;
    esac
}

# Runs a command of apt with the package lists of another release, which the machine's own apt does not use:
# foreign RELEASE COMMAND ARGUMENT...
foreign() {
    lists=$roots/lists/$1
    command=$2
    shift 2
    "$command" -q -o Dir::State="$lists" -o Dir::State::status="$lists/status" -o Dir::Cache="$lists/cache" \
        -o Dir::Etc::sourcelist="$lists/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User=root "$@"
}
fetch_lists() {
    mkdir -p "$roots/lists/$1/lists/partial" "$roots/lists/$1/cache/archives/partial"
    : >"$roots/lists/$1/status"
    sources_of "$1" "$2" >"$roots/lists/$1/sources.list"
    logged foreign "$1" apt-get update
}

# Debian 12 does not have the package with Ubuntu's keys.
ubuntu_keys() {
    [ ! -e "$keys" ] || return 0
    fetch_lists trixie deb
    (cd "$roots/lists/trixie" && logged foreign trixie apt-get download ubuntu-keyring)
    dpkg -x "$roots"/lists/trixie/ubuntu-keyring_*.deb "$roots/keys"
}

# Lets the kernel run programs for 64-bit ARM with QEMU, in every root, as systemd does for the package's settings.
emulate_arm64() {
    need qemu-user-static
    need arch-test
    formats=/proc/sys/fs/binfmt_misc
    [ -e $formats/register ] || mount -t binfmt_misc binfmt_misc $formats
    [ -e $formats/qemu-aarch64 ] || cat /usr/lib/binfmt.d/qemu-aarch64.conf >$formats/register
}

# Makes a root with a distribution's PHP: distribution SERIES RELEASE [ARCHITECTURE]
distribution() {
    need mmdebstrap
    suite=$2
    case $2 in
        bookworm | trixie) ;;
        experimental) suite=unstable ;;
        *) ubuntu_keys ;;
    esac
    packages=php$1-fpm,php$1-cgi,php$1-cli,php$1-sqlite3,php$1-mbstring,php$1-mysql,php$1-curl,php$1-xml
    # Since PHP 8.5, opcache is part of PHP and has no package of its own.
    case $1 in 8.[234]) packages=$packages,php$1-opcache ;; esac
    sources_of "$2" deb >"$roots/$name.list"
    # The headers' package is only unpacked, because it depends on compilers. A mirror of unstable may be older than its
    # lists are valid.
    logged mmdebstrap --mode=root ${3:+"--architectures=$3"} --variant=essential --format=directory \
        --include="$packages" \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/i18n/*' \
        --customize-hook="cd \"\$1/tmp\" && APT_CONFIG=\$MMDEBSTRAP_APT_CONFIG apt-get -o APT::Sandbox::User=root download php$1-dev && dpkg -x php$1-dev_*.deb \"\$1\" && rm php$1-dev_*.deb" \
        "$suite" "$roots/$name" "$roots/$name.list"
    cat >"$roots/$name/php-config" <<'END'
#!/bin/sh
# Prints what this root's php-config prints, with paths that are valid outside of the root.
root=$(dirname "$(realpath "$0")")
sh "$root"/usr/bin/php-config?.? "$@" | sed "s:\(^\| \)\(-[IL]\|\)/:\1\2$root/:g"
END
    chmod 755 "$roots/$name/php-config"
}

# Makes a system in which the whole test suite runs: system RELEASE
system() {
    need mmdebstrap
    sources_of "$1" deb >"$roots/$name.list"
    logged mmdebstrap --mode=root --variant=apt --format=directory --include=adduser,passwd \
        --aptopt='APT::Install-Recommends "false"' "$1" "$roots/$name" "$roots/$name.list"
    logged scripts/in-root.sh "$name" scripts/setup-debian.sh test
}

# Compiles a thread-safe PHP, which no distribution has, from the release of PHP in a distribution's source package:
# thread_safe SERIES RELEASE
# session is a shared extension, as on Alpine.
thread_safe() {
    need gcc
    need g++ make pkg-config xz-utils dpkg-dev libffi-dev libxml2-dev libssl-dev libsqlite3-dev zlib1g-dev
    ubuntu_keys
    fetch_lists "$2" deb-src
    source=$roots/source-$1
    rm -rf "$source"
    mkdir -p "$source/php"
    (cd "$source" && logged foreign "$2" apt-get source --download-only --tar-only "php$1")
    logged tar xf "$source/php$1"_*.orig.tar.xz -C "$source/php" --strip-components=1
    opcache=
    case $1 in 8.[234]) opcache=--enable-opcache ;; esac
    (
        cd "$source/php"
        export CFLAGS="-O1 -g0"
        # shellcheck disable=SC2086 # $opcache is one argument or none.
        logged ./configure --quiet --prefix="$roots/$name/opt/php" --with-config-file-scan-dir="$roots/$name/conf.d" \
            --enable-zts --disable-all --enable-cli --enable-cgi --enable-fpm $opcache \
            --enable-session=shared --enable-filter --enable-ctype --enable-tokenizer --enable-fileinfo --enable-posix \
            --enable-pcntl --enable-mbstring --disable-mbregex --with-libxml --enable-xml --enable-dom \
            --enable-simplexml --enable-xmlreader --enable-xmlwriter --with-openssl --with-zlib --with-iconv --with-ffi \
            --enable-pdo --with-pdo-sqlite --with-sqlite3 --enable-mysqlnd --with-mysqli=mysqlnd \
            --with-pdo-mysql=mysqlnd
        logged make -s -j "$(nproc)"
        logged make -s install
    )
    cp "$source/php/php.ini-production" "$roots/$name/opt/php/lib/php.ini"
    mkdir -p "$roots/$name/conf.d"
    {
        echo extension=session
        # opcache is shared before PHP 8.5.
        [ -z "$opcache" ] || echo zend_extension=opcache
    } >"$roots/$name/conf.d/extensions.ini"
    rm -rf "$source"
    ln -s opt/php/bin/php-config "$roots/$name/php-config"
}

# Unpacks programs of another distribution, with the libraries that they need: npm_package SERIES PACKAGE
npm_package() {
    command -v npm >/dev/null || need npm
    need patchelf
    [ -e "$roots/$1.complete" ] || "$0" "$1"
    mkdir -p "$roots/$name/conf.d"
    (cd "$roots/$name" && logged npm pack --silent "$2")
    logged tar xzf "$roots/$name"/*.tgz -C "$roots/$name" --strip-components=1
    native=$roots/$name/native
    # These files name a directory of extensions that exists only in a Lambda function.
    rm "$native"/php/*.ini
    for file in "$native"/php/php "$native"/php/php-cgi "$native"/php/php-fpm "$native"/php/modules/*.so "$native"/lib/*; do
        logged patchelf --force-rpath --set-rpath "$native/lib" "$file"
    done
    for extension in ctype curl dom fileinfo iconv mbstring mysqlnd pdo posix shmop simplexml sockets sqlite3 tokenizer \
        xml xmlreader xmlwriter mysqli pdo_mysql pdo_sqlite; do
        [ ! -e "$native/php/modules/$extension.so" ] || echo "extension=$extension"
    done >"$roots/$name/conf.d/20-extensions.ini"
    echo "extension_dir=$native/php/modules" >"$roots/$name/conf.d/10-directory.ini"
    [ ! -e "$native/php/modules/opcache.so" ] || echo zend_extension=opcache >>"$roots/$name/conf.d/10-directory.ini"
    # The values that every distribution sets in its php.ini.
    printf '%s\n' output_buffering=4096 register_argc_argv=Off display_errors=Off >"$roots/$name/conf.d/00-usual.ini"
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$roots/$1/php-config" >"$roots/$name/php-config"
    chmod 755 "$roots/$name/php-config"
    api=$("$roots/$1/php-config" --phpapi)
    build=$("$native/php/php" -n -i | sed -n 's/^PHP Extension Build => //p')
    [ "$build" = "API$api,NTS" ] || die "$name: the headers of $1 are for the build API$api,NTS, but this PHP is of the build $build"
}

make_root() {
    case $name in
        8.2) distribution 8.2 bookworm ;;
        8.3) distribution 8.3 noble ;;
        8.4) distribution 8.4 trixie ;;
        8.5) distribution 8.5 resolute ;;
        8.6) distribution 8.6 experimental ;;
        debian-13) system trixie ;;
        8.2-arm64) distribution 8.2 bookworm arm64 ;;
        8.3-zts) thread_safe 8.3 noble ;;
        8.5-zts) thread_safe 8.5 resolute ;;
        amazon-2-8.3) npm_package 8.3 @libphp/amazon-linux-2-v83 ;;
        amazon-2023-8.4) npm_package 8.4 @libphp/amazon-linux-2023-v84 ;;
        alma-9-8.5) npm_package 8.5 @libphp/almalinux-9-v85 ;;
        *) die "unknown name '$name': expected one of $names" ;;
    esac
}

[ "${1-}" != --list ] || {
    echo "$names" | tr ' ' '\n'
    exit 0
}
[ "$(id -u)" = 0 ] || die "this script makes roots for chroot and installs packages, so run it as the user root"
mkdir -p "$roots"
# shellcheck disable=SC2086 # One argument for each name.
[ $# -gt 0 ] || set -- $names
for name in "$@"; do
    # The kernel forgets this when the machine is restarted.
    case $name in *-arm64) emulate_arm64 ;; esac
    [ ! -e "$roots/$name.complete" ] || continue
    say "making $name"
    rm -rf "${roots:?}/$name"
    : >"$roots/$name.log"
    make_root
    touch "$roots/$name.complete"
    say "$name: $(du -sh "$roots/$name" | cut -f 1)"
done
