#!/bin/sh
# Tests the packages in fresh Debian systems in which systemd runs: it installs them with apt from a signed repository,
# serves WordPress, upgrades them under load, and checks that purging removes everything.
#
#   scripts/test-packages.sh [bookworm] [trixie]     by default both releases
#
# Needs root, the packages of `scripts/setup-debian.sh packages`, a Rust toolchain, and access to Debian's archive. Each
# system is created once, in target/systems, and the changes of a test are discarded. Processes, mounts and network are
# separate from this machine's, so that nothing on this machine changes and port 80 is free.
#
# By default, the packages contain the programs of `make test`. With PROFILE=release, they contain optimised programs.
set -eu
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
systems=$target/systems
profile=${PROFILE:-dev}
archive=http://deb.debian.org/debian
export DEBIAN_FRONTEND=noninteractive

say() { echo "test-packages: $(date +%T) $*"; }
die() {
    echo "test-packages: $*" >&2
    exit 1
}
# Also runs when a command has failed and has ended the script.
at_the_end() {
    status=$?
    [ $status = 0 ] || [ -z "$init" ] || {
        echo "test-packages: $release: FAILED in $step. The states of the units, and the last lines of the journal and of $log:"
        inside sh -c 'systemctl status --no-pager --lines 0 "howdah*"; journalctl --no-pager --grep "howdah|namespac" -n 40' || true
        tail -n 20 "$log"
    } >&2
    end_system
}
end_system() {
    kill -KILL "$unshared" 2>/dev/null || true
    wait "$unshared" 2>/dev/null || true
    # The system's processes die a moment after its first process.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [ -e "$cgroup" ] || break
        sleep 0.5
    done
}

[ "$(id -u)" = 0 ] || die "this script creates other systems, so run it as the user root"

# Creates a private mount namespace, which ends with this script.
if [ -z "${HOWDAH_MOUNTS-}" ]; then
    HOWDAH_MOUNTS=1 exec unshare --mount --propagation private -- "$0" "$@"
fi

series_of() { case $1 in bookworm) echo 8.2 ;; *) echo 8.4 ;; esac; }
# Without a theme, WordPress sends empty pages.
theme_of() { case $1 in bookworm) echo twentytwentyone ;; *) echo twentytwentyfive ;; esac; }

# Creates the system, and downloads the Debian packages that it needs later, when it cannot reach the archive:
# base RELEASE
base() {
    [ -e "$systems/$1.complete" ] && return
    say "$1: creating a fresh system"
    rm -rf "${systems:?}/$1"
    mkdir -p "$systems"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,ca-certificates,curl \
        "$1" "$systems/$1" "$archive" >"$systems/$1.log" 2>&1 || { tail "$systems/$1.log"; die "debootstrap failed"; }
    # The packages may be built with the PHP of a security update, so the archive of these updates is needed, too.
    cat >"$systems/$1/etc/apt/sources.list" <<EOF
deb $archive $1 main
deb $archive $1-updates main
deb $archive-security $1-security main
EOF
    cp /etc/resolv.conf "$systems/$1/etc/resolv.conf"
    mount -t proc proc "$systems/$1/proc"
    chroot "$systems/$1" sh -ec 'apt-get update -q; apt-get install -y -q --download-only --no-install-recommends "$@"' sh \
        "php$(series_of "$1")-mysql" "php$(series_of "$1")-cli" \
        "php$(series_of "$1")-cgi" mariadb-server wordpress "wordpress-theme-$(theme_of "$1")" \
        logrotate nginx procps python3 >>"$systems/$1.log" 2>&1 \
        || { tail "$systems/$1.log"; die "Debian's packages cannot be downloaded"; }
    umount "$systems/$1/proc"
    touch "$systems/$1.complete"
}

# Mounts the system so that changes are written to another directory: open_system RELEASE NAME
open_system() {
    root=$systems/run/$2
    mkdir -p "$root" "$systems/changes-$2"
    mount -t tmpfs tmpfs "$systems/changes-$2"
    mkdir "$systems/changes-$2/upper" "$systems/changes-$2/work"
    mount -t overlay overlay -o "lowerdir=$systems/$1,upperdir=$systems/changes-$2/upper,workdir=$systems/changes-$2/work" "$root"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    mount -t proc proc "$root/proc"
}

close_system() {
    umount -R "$root" 2>/dev/null || umount -R -l "$root"
    umount "$systems/changes-$1"
}

# Builds the first and the second version of a release's packages: build RELEASE. For another release than this machine's,
# the build runs in that release's system, with this toolchain. All paths are the same there, so cargo reuses what is
# already compiled and builds only the crates that depend on PHP.
build() {
    say "$1: packages (profile $profile)"
    log=$systems/$1.build.log
    if [ "$(. /etc/os-release && echo "$VERSION_CODENAME")" = "$1" ]; then
        both_versions "$1" >"$log" 2>&1 || { tail -n 40 "$log"; die "$1: the packages are not built"; }
        return
    fi
    open_system "$1" build
    for path in "${CARGO_HOME:-$HOME/.cargo}" "${RUSTUP_HOME:-$HOME/.rustup}" "$PWD" "$target"; do
        mkdir -p "$root$path"
        mount --bind "$path" "$root$path"
    done
    mount --bind /dev "$root/dev"
    {
        chroot "$root" apt-get update -q
        chroot "$root" apt-get install -y -q --no-install-recommends git
        chroot "$root" "$PWD/scripts/setup-debian.sh" packages
        chroot "$root" env HOWDAH_MOUNTS=1 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0="$PWD" \
            "$PWD/scripts/test-packages.sh" --build "$1"
    } >"$log" 2>&1 || { tail -n 40 "$log"; die "$1: the packages are not built"; }
    close_system build
}

both_versions() {
    for revision in "" 1; do
        PROFILE=$profile REVISION=$revision scripts/packages.sh "$systems/packages-$1$revision" || return
    done
}

# Runs a command in the running system.
inside() { nsenter --target "$init" --all --root env -C / -i PATH="$PATH" HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
# Debian's packages have been downloaded before, because the running system cannot reach the archive.
apt() {
    inside apt-get -y -q -o Dpkg::Use-Pty=0 -o APT::Install-Recommends=false "$@" >>"$log" 2>&1 \
        || { tail -n 30 "$log"; die "apt-get $*"; }
}
update() { apt -o Dir::Etc::SourceList=sources.list.d/howdah.sources -o Dir::Etc::SourceParts=- -o APT::Get::List-Cleanup=0 update; }
page() { inside curl -sS --max-time 20 "$@"; }
# Repeats a command until it succeeds, and fails with MESSAGE after SECONDS: until_true SECONDS MESSAGE COMMAND...
until_true() {
    end=$(($(date +%s) + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt $end ] || die "$what"
        sleep 0.2
    done
}
expect() { [ "$1" = "$2" ] || die "$3: expected '$2', found '$1'"; }
holds() { case $1 in *"$2"*) ;; *) die "$3: expected '$2' in: $1" ;; esac; }
files() { inside find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /repository -o -path /var/cache/apt -o -path /var/lib/apt -o -path /var/log/journal \) -prune -o -print | sort; }

publish() { SIGN_WITH=test@howdah.example GNUPGHOME=$gnupg scripts/repository.sh "$1" "http://127.0.0.1:8000" "$2" >>"$log" 2>&1; }

first_process() { init=$(pgrep -P "$unshared" | head -n 1) && [ -n "$init" ] && grep -qx systemd "/proc/$init/comm"; }
came_up() { inside systemctl is-system-running | grep -qx running; }
is_active() { inside systemctl is-active --quiet "$1"; }
serves() { page -o /dev/null "$1"; }
serves_php() { holds "$(page http://127.0.0.1/info.php)" "$series." "a page $1"; }
# Succeeds once the service has no private /var/tmp, which systemd removes some time after the service has stopped.
no_private_tmp() { ! inside sh -c 'ls -d /var/tmp/systemd-private-*-howdah.service-*'; }
main_process() { inside systemctl show --value -p MainPID howdah.service; }
# Prints the inode of the program file that the service runs.
program() { inside stat --dereference --format %i "/proc/$(main_process)/exe"; }

# Installs the package without PHP, and while another server uses port 80.
refusals() {
    apt install howdah
    holds "$(cat "$log")" "PHP is not installed. It starts when you run: apt install php-cgi" "an installation without PHP"
    is_active howdah.socket && die "howdah.socket is active without PHP"
    holds "$(inside howdah check --config /etc/howdah/howdah.toml 2>&1 || true)" "PhpMissing: there is no PHP program" "howdah check without PHP"
    apt purge howdah
    apt install nginx
    apt install howdah "php$series-cgi"
    holds "$(cat "$log")" "another server listens on port 80" "an installation beside nginx"
    is_active howdah.service && die "howdah runs beside nginx"
    holds "$(page -I http://127.0.0.1/)" "Server: nginx" "the server beside which howdah was installed"
    apt purge howdah "php$series-cgi" nginx nginx-common
    apt autoremove --purge
    inside rm -rf /var/www
}

install_and_serve() {
    begun=$(date +%s.%N)
    apt install howdah "php$series-cgi"
    holds "$(page http://127.0.0.1/)" "Howdah serves this page" "the first page"
    say "$release: apt install to the first page: $(awk "BEGIN { print $(date +%s.%N) - $begun }") s, downloads apart"
    inside sh -c 'echo "<?php echo PHP_VERSION, \" \", posix_geteuid(), \" \", php_sapi_name();" >/var/www/html/info.php'
    holds "$(page http://127.0.0.1/info.php)" "$series." "a PHP page"
    # Of all processes of the unit, only the master has capabilities, and none runs as root.
    for pid in $(inside systemctl show --value -p ControlGroup howdah.service | inside xargs -I{} cat /sys/fs/cgroup{}/cgroup.procs); do
        status=$(inside cat "/proc/$pid/status")
        user=$(echo "$status" | awk '$1 == "Uid:" { print $2, $3, $4, $5 }')
        rights=$(echo "$status" | awk '$1 ~ /^Cap(Prm|Eff|Amb|Inh):/ { print $2 }' | sort -u)
        main=$(inside systemctl show --value -p MainPID howdah.service)
        expect "$(echo "$user" | tr ' ' '\n' | grep -cx 0 || true)" 0 "ids that are root's in process $pid"
        [ "$pid" = "$main" ] || expect "$rights" 0000000000000000 "capabilities of process $pid"
    done
    exposure=$(inside systemd-analyze security howdah.service --no-pager | sed -n 's/.*exposure level for howdah.service: \([0-9.]*\).*/\1/p')
    say "$release: systemd-analyze security: $exposure"
    awk "BEGIN { exit !($exposure <= 3.0) }" || die "systemd-analyze rates the unit's exposure at $exposure, which is more than 3.0"
}

# Checks a site with a user of its own, another PHP program, and a mistake in an included file.
sites() {
    inside useradd --create-home --home-dir /srv/alice --shell /usr/sbin/nologin alice
    inside sh -ec '
        mkdir /srv/alice/web
        echo "<?php file_put_contents(\"written\", 1); echo get_current_user(), posix_getpwuid(posix_geteuid())[\"name\"], basename(readlink(\"/proc/self/exe\"));" >/srv/alice/web/index.php
        chown -R alice: /srv/alice && chmod 755 /srv/alice
        cp /usr/bin/php-cgi$0 /opt/php-of-alice
        printf "[pool.alice]\nuser = \"alice\"\nphp = \"/opt/php-of-alice\"\n[[site]]\nhosts = [\"alice.test\"]\nroot = \"/srv/alice/web\"\nrecognise = true\npool = \"alice\"\n" >/etc/howdah/sites.d/alice.toml
        systemctl reload howdah' "$series"
    expect "$(page -H 'Host: alice.test' http://127.0.0.1/)" "alicealicephp-of-alice" "a site of another user, with another PHP program"
    inside sh -c 'echo "rot = 1" >/etc/howdah/conf.d/mistake.toml'
    inside systemctl reload howdah 2>/dev/null && die "a reload succeeded although the configuration has a mistake"
    holds "$(inside journalctl --no-pager -u howdah -n 20)" "/etc/howdah/conf.d/mistake.toml:1:1: unknown key" "the mistake's place"
    inside rm /etc/howdah/conf.d/mistake.toml
    holds "$(page http://127.0.0.1/info.php)" "$series." "a page after the refused reload"
    inside rm /etc/howdah/sites.d/alice.toml /opt/php-of-alice
    inside systemctl reload howdah
}

wordpress() {
    apt install "php$series-mysql" mariadb-server wordpress "wordpress-theme-$(theme_of "$release")"
    inside sh -ec '
        systemctl start mariadb
        mariadb -e "create database wp; create user wp@localhost identified by \"secret\"; grant all on wp.* to wp@localhost"
        cat >/etc/wordpress/config-localhost.php <<"END"
<?php
define("DB_NAME", "wp"); define("DB_USER", "wp"); define("DB_PASSWORD", "secret"); define("DB_HOST", "localhost");
define("WP_CONTENT_DIR", "/var/lib/wordpress/wp-content");
END
        printf "[[site]]\nhosts = [\"localhost\"]\nroot = \"/usr/share/wordpress\"\nrecognise = true\n" >/etc/howdah/sites.d/wordpress.toml'
    # The extension is new, so the service has to be restarted.
    inside systemctl restart howdah
    page -o /dev/null --data 'weblog_title=Elephants&user_name=keeper&admin_password=elephant&admin_password2=elephant&pw_weak=1&admin_email=a@b.test' \
        'http://localhost/wp-admin/install.php?step=2'
    holds "$(page http://localhost/)" Elephants "WordPress' page"
}

https() {
    inside sed -i 's/^listen = .*/listen = ["*:80", "*:443 tls http3"]/' /etc/howdah/howdah.toml
    inside systemctl enable --quiet howdah-https.socket
    inside systemctl restart howdah
    holds "$(page -k https://localhost/wp-login.php)" user_login "a page by HTTPS, from the local authority"
    holds "$(inside cat /proc/net/udp6)" "01BB" "the port of HTTP/3"
    # As an administrator does to change the port.
    before=$(main_process)
    inside systemctl restart howdah.socket
    [ "$before" != "$(main_process)" ] || die "the restart of howdah.socket did not restart the service"
    serves_php "after a restart of howdah.socket"
}

# Checks what `howdah init` writes: a site for the packaged server, and, if the program does not come from a package, a
# unit for a server of its own, which systemd starts and reloads, and whose program is upgraded.
of_howdah_init() {
    inside sh -ec '
        mkdir -p /srv/zoo.test /srv/shop /opt/howdah/bin
        echo "<?php echo \"zoo \", posix_getpwuid(posix_geteuid())[\"name\"];" >/srv/zoo.test/index.php
        howdah init /srv/zoo.test -o /etc/howdah/sites.d/zoo.toml
        howdah check --config /etc/howdah/howdah.toml
        systemctl reload howdah' >>"$log" 2>&1 || { tail -n 20 "$log"; die "howdah init for a site of the packaged server failed"; }
    expect "$(page -H 'Host: zoo.test' http://127.0.0.1/)" "zoo www-data" "a site that howdah init has added to the packaged server"
    inside rm -r /srv/zoo.test /etc/howdah/sites.d/zoo.toml
    inside systemctl stop --quiet howdah.socket howdah.service
    inside sh -ec '
        cp /usr/bin/howdah /opt/howdah/bin/ && cp /usr/lib/howdah/howdah-php-*.so /opt/howdah/bin/
        mv /etc/howdah /etc/howdah.away
        echo "<?php echo posix_getpwuid(posix_geteuid())[\"name\"], file_put_contents(\"orders\", 1);" >/srv/shop/index.php
        chown -R www-data: /srv/shop && cd /srv/shop && /opt/howdah/bin/howdah init
        sed -i "s/^# listen = \"127.*/listen = \"*:80\"/" howdah.toml && grep -q "^listen = .\*:80" howdah.toml
        install -m 644 howdah.service /etc/systemd/system/howdah-shop.service
        systemctl daemon-reload
        systemctl start howdah-shop
        systemctl reload howdah-shop' >>"$log" 2>&1 || { inside journalctl --no-pager -u howdah-shop -n 20; die "the unit of howdah init does not start"; }
    expect "$(page http://127.0.0.1/)" "www-data1" "a page of the unit that howdah init has written"
    inside sh -ec 'cp /opt/howdah/bin/howdah /opt/howdah/bin/next && mv /opt/howdah/bin/next /opt/howdah/bin/howdah
        /opt/howdah/bin/howdah upgrade --control /run/howdah-shop/control.sock' >>"$log" 2>&1 || die "the upgrade of the server of howdah init failed"
    expect "$(page http://127.0.0.1/)" "www-data1" "a page after an upgrade by hand"
    expect "$(inside systemctl is-active howdah-shop)" active "the unit after it"
    inside systemctl stop --quiet howdah-shop
    inside sh -ec 'rm -r /etc/systemd/system/howdah-shop.service /opt/howdah /srv/shop /var/log/howdah-shop /var/cache/howdah-shop /var/lib/howdah-shop
        mv /etc/howdah.away /etc/howdah; systemctl daemon-reload; systemctl start howdah'
}

# Upgrades while the disk is full: dpkg fails, and the server continues to serve and can be restarted. The next upgrade
# succeeds.
disk_full() {
    publish "$root/repository" "$systems/packages-${release}1"
    before=$(main_process)
    used=$(df -k --output=used "$systems/changes-$release" | tail -n 1)
    mount -o "remount,size=$((used + 4096))k" "$systems/changes-$release"
    inside sh -c 'dpkg --install /repository/pool/main/h/howdah/howdah*+1~*.deb' >>"$log" 2>&1 && die "dpkg succeeded although the disk is full"
    holds "$(tail -n 40 "$log")" "No space left on device" "what dpkg says of a full disk"
    inside sh -c 'cat /dev/zero >/var/tmp/fill' 2>/dev/null && die "the disk is not full"
    serves_php "on a full disk"
    expect "$(main_process)" "$before" "the server's process after an upgrade without room"
    inside systemctl restart howdah
    serves_php "of a server started on a full disk"
    inside rm /var/tmp/fill
    mount -o remount,size=50% "$systems/changes-$release"
}

# Opens new connections, uses kept connections and uploads while apt upgrades the package. Prints the requests that failed.
upgrade() {
    cp scripts/upgrade-load.py "$root/repository/"
    inside sh -c 'echo "<?php echo strlen(file_get_contents(\"php://input\"));" >/var/www/html/upload.php'
    load "$release.load"
    # Changes the unit, as if the first version had come with another one.
    inside sh -ec 'sed -i s/^RestartSec=.*/RestartSec=7/ "$(systemctl show --value -p FragmentPath howdah.service)"; systemctl daemon-reload'
    before=$(main_process)
    program=$(program)
    update
    apt install howdah
    holds "$(inside dpkg-query -W howdah)" "+1~$release" "the version after the upgrade"
    expect "$(main_process)" "$before" "the server's process after the upgrade"
    [ "$program" != "$(program)" ] || die "the upgrade has not started the new program"
    expect "$(inside systemctl show --value -p RestartUSec howdah.service)" 1s "RestartSec= of the new version's unit"
    inside touch /tmp/upgraded
    loaded "requests were lost in the upgrade"
}

# Checks an upload that begins before an upgrade and that ends, after the old front has been told to stop, later than
# timeouts.stop would allow.
upgrade_in_an_upload() {
    inside rm /tmp/upgraded
    load "$release.load" upload
    program=$(program)
    apt --reinstall install howdah
    [ "$program" != "$(program)" ] || die "the upgrade has not started the new program"
    inside touch /tmp/upgraded
    loaded "an upload was lost in the upgrade"
}

# Starts the load: load OUTPUT [upload]. Waits for its end, and fails with MESSAGE if a request was lost: loaded MESSAGE
load() {
    output=$systems/$1
    shift
    inside python3 /repository/upgrade-load.py "$@" >"$output" &
    load=$!
    until_true 20 "the load does not begin" grep -q begun "$output"
}
loaded() {
    wait "$load" || { cat "$output"; die "$1"; }
    say "$release: $(tail -n 1 "$output")"
}

# Makes the whole system read-only except for /run and /tmp.
read_only_system() {
    inside systemctl stop --quiet howdah.service
    until_true 20 "systemd does not remove the private /var/tmp" no_private_tmp
    inside sh -ec 'for path in /etc /srv /usr /var; do mount --bind $path $path; mount -o remount,bind,ro $path; done'
    inside systemctl start howdah 2>/dev/null && die "the server started although its log is on a read-only disk"
    holds "$(inside journalctl --no-pager -u howdah -n 30)" "log.error: /var/log/howdah/error.log cannot be opened: Read-only file system" "the journal"
    inside sh -ec '
        umount -l /etc
        cp /etc/howdah/howdah.toml /run/howdah.toml
        sed -i "s/^error = .*/error = \"stderr\"/; s/^access = .*/access = \"stdout\"/" /etc/howdah/howdah.toml
        mount --bind /etc /etc
        mount -o remount,bind,ro /etc
        systemctl reset-failed howdah
        systemctl restart howdah'
    serves_php "from a read-only disk"
    holds "$(inside howdah status --control /run/howdah/control.sock)" "pool www: Ready" "the status on a read-only disk"
    holds "$(inside journalctl --no-pager -u howdah -n 30)" "GET /info.php" "the log on a read-only disk"
    inside sh -ec '
        systemctl stop --quiet howdah.service
        umount -l /etc /srv /usr /var
        cp /run/howdah.toml /etc/howdah/howdah.toml
        systemctl start howdah'
    serves_php "after the disk can be written to again"
}

leaves_nothing() {
    # Without this, removing Howdah would make apt install another web server, because WordPress needs one.
    apt purge wordpress "wordpress-theme-$(theme_of "$release")"
    apt purge howdah
    inside rm -f /etc/howdah/sites.d/wordpress.toml
    inside rmdir --ignore-fail-on-non-empty /etc/howdah/sites.d /etc/howdah 2>/dev/null || true
    until_true 20 "systemd does not remove the private /var/tmp" no_private_tmp
    files >"$systems/$release.before"
    apt install howdah
    page -o /dev/null http://127.0.0.1/info.php
    apt purge howdah
    for unit in howdah.socket howdah-https.socket howdah.service; do
        is_active $unit && die "$unit is still active after the package was purged"
    done
    until_true 20 "systemd does not remove the private /var/tmp" no_private_tmp
    files >"$systems/$release.after"
    diff "$systems/$release.before" "$systems/$release.after" || die "files remain after the package was purged"
    left=$(grep howdah "$systems/$release.after" | grep -vx /etc/apt/sources.list.d/howdah.sources || true)
    [ -z "$left" ] || die "these files remain after the package was purged: $left"
    [ -e "$root/var/www/html/info.php" ] || die "purging the package removed a site"
}

scenario() {
    for step in update refusals install_and_serve sites of_howdah_init wordpress https disk_full upgrade upgrade_in_an_upload read_only_system leaves_nothing; do
        $step
    done
}

try() {
    release=$1 log=$systems/$1.log
    : >"$log"
    series=$(series_of "$release")
    open_system "$release" "$release"
    mkdir -p "$root/repository"
    gnupg=$(mktemp -d)
    GNUPGHOME=$gnupg gpg --batch --quiet --passphrase '' --quick-generate-key test@howdah.example rsa3072 sign never 2>>"$log"
    publish "$root/repository" "$systems/packages-$release"
    umount "$root/proc"
    # The system uses this machine's kernel.
    ln -s /dev/null "$root/etc/systemd/system/systemd-modules-load.service"

    say "$release: systemd starts"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    # The system gets a control group of its own, which is the root that its systemd sees.
    mkdir -p "$systems/cgroup"
    mount -t cgroup2 cgroup2 "$systems/cgroup"
    cgroup=$systems/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/howdah-$$-$release
    mkdir "$cgroup"
    sh -c 'echo $$ >"$0/cgroup.procs"; exec "$@"' "$cgroup" \
        unshare --fork --kill-child --pid --mount --uts --ipc --net --cgroup --propagation private -- sh -ec '
        root=$0
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount -t sysfs -o ro sysfs "$root/sys"
        mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
        mount -t tmpfs -o mode=755 tmpfs "$root/dev"
        for node in null zero full random urandom tty; do
            touch "$root/dev/$node"
            mount --bind "/dev/$node" "$root/dev/$node"
        done
        mkdir "$root/dev/shm" "$root/dev/pts"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        # The sandbox of PrivateDevices= needs these, too.
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
        ln -s pts/ptmx "$root/dev/ptmx"
        ln -s /proc/self/fd "$root/dev/fd"
        ln -s /proc/self/fd/0 "$root/dev/stdin"
        ln -s /proc/self/fd/1 "$root/dev/stdout"
        ln -s /proc/self/fd/2 "$root/dev/stderr"
        ip link set lo up
        cd "$root"
        mkdir -p .old
        pivot_root . .old
        umount -l /.old
        rmdir /.old
        exec env -i container=howdah-test PATH="$PATH" /lib/systemd/systemd --log-target=console --log-level=warning \
            --unit=multi-user.target systemd.show_status=no' "$root" </dev/null >>"$log" 2>&1 &
    unshared=$!
    init= step="the start of systemd"
    trap at_the_end EXIT
    until_true 20 "$release: systemd does not start: $(tail -n 5 "$log")" first_process
    until_true 60 "$release: systemd does not come up" came_up

    apt install python3 procps
    inside python3 -m http.server --bind 127.0.0.1 --directory /repository 8000 >>"$log" 2>&1 &
    until_true 20 "$release: the repository is not served" serves http://127.0.0.1:8000/
    cp "$root/repository/$release.sources" "$root/etc/apt/sources.list.d/howdah.sources"
    scenario
    say "$release: passed"
    trap - EXIT
    end_system
    umount "$systems/cgroup"
    close_system "$release"
    GNUPGHOME=$gnupg gpgconf --kill all
    rm -rf "$gnupg"
}

[ "${1-}" = --build ] && { both_versions "$2"; exit; }
case $# in 0) set -- bookworm trixie ;; esac
init=
for release; do
    base "$release"
    build "$release"
    say "$release: $(cd "$systems/packages-$release" && du -ch ./howdah*_*.deb | sed 's|\./||' | tr '\n\t' '  ')"
    try "$release"
done
