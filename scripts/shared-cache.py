#!/usr/bin/env python3
"""Measures the shared cache beside APCu: a call, logged-in pages of WordPress, and a WooCommerce cart.

    scripts/shared-cache.py BUILD [--turns N] [--wordpress DIR] [--woocommerce DIR]

BUILD is a directory with `howdah` and `howdah-php`. Installs Debian's WordPress, or that of DIR, three times on
one private MariaDB (scripts/setup-debian.sh test): as it is, with Howdah's drop-in for the object cache, and with
the same drop-in on APCu (Debian's php-apcu). One client asks all of them for each page in turns; a row gives
medians, and the median, smallest and largest ratio of one turn. Needs root for www-data.
"""
import argparse, contextlib, importlib, json, pathlib, shutil, signal, socket, statistics, subprocess, sys, tempfile, time
import processes

old_and_new = importlib.import_module("old-and-new")
php = old_and_new.php
ARMS = ("without", "shared cache", "APCu")
SECONDS = 2
DROP_IN = pathlib.Path(__file__).resolve().parent.parent / "packaging/php/object-cache.php"
# What the drop-in calls, on APCu. A tag is not needed here: nothing is flushed.
ON_APCU = """<?php
function apcu_howdah_get($key, $none = null) { $value = apcu_fetch($key, $found); return $found ? $value : $none; }
function apcu_howdah_set($key, $value, $ttl = 0, $tags = []) { return apcu_store($key, $value, $ttl); }
function apcu_howdah_add($key, $value, $ttl = 0, $tags = []) { return apcu_add($key, $value, $ttl); }
function apcu_howdah_delete($key) { return apcu_delete($key); }
function apcu_howdah_increment($key, $step = 1) { return apcu_exists($key) ? apcu_inc($key, $step) : false; }
function apcu_howdah_delete_tag(...$tags) { return true; }
function apcu_howdah_info() { return []; }
?>"""
CALLS = """<?php
$row = (object) ['ID' => 7, 'post_title' => 'A title', 'post_content' => str_repeat('words ', 300), 'post_date' => '2026-11-27 10:00:00', 'post_status' => 'publish', 'comment_count' => '3'];
$options = [];
for ($i = 0; $i < 400; $i++) { $options["option_$i"] = str_repeat(chr(97 + $i % 26), $i % 150); }
$values = ['integer' => 7, 'string of 100 bytes' => str_repeat('s', 100), 'string of 30 KB' => str_repeat('s', 30000),
           'row of a table' => $row, '100 rows' => array_map(fn ($i) => clone $row, range(1, 100)), '400 options' => $options];
foreach ($values as $name => $value) {
    $times = [];
    $rounds = strlen(serialize($value)) > 5000 ? 300 : 20000;
    foreach (['howdah_cache_set', 'apcu_store', 'howdah_cache_get', 'apcu_fetch'] as $call) $times[$call] = INF;
    for ($turn = 0; $turn < 5; $turn++) {
        foreach (array_keys($times) as $call) {
            $sets = str_ends_with($call, 'set') || str_ends_with($call, 'store');
            $begun = hrtime(true);
            if ($sets) { for ($i = 0; $i < $rounds; $i++) $call('key', $value); } else { for ($i = 0; $i < $rounds; $i++) $got = $call('key'); }
            $times[$call] = min($times[$call], (hrtime(true) - $begun) / $rounds);
        }
    }
    printf("%-22s %8.0f %8.0f ns  %.2f     %8.0f %8.0f ns  %.2f\n", $name, $times['howdah_cache_get'], $times['apcu_fetch'],
        $times['howdah_cache_get'] / $times['apcu_fetch'], $times['howdah_cache_set'], $times['apcu_store'], $times['howdah_cache_set'] / $times['apcu_store']);
}
"""


def posts(site):
    """A site that has been written for: 50 posts with comments, terms and meta data."""
    php(site, """
        $GLOBALS['wp_rewrite']->set_permalink_structure('/%postname%/');
        flush_rewrite_rules();
        for ($i = 0; $i < 50; $i++) {
            $id = wp_insert_post(['post_title' => "Stage $i", 'post_status' => 'publish', 'post_author' => 1,
                'post_content' => str_repeat("<p>The caravan went on until the evening of day $i.</p>\\n", 30),
                'tags_input' => ['day ' . $i % 7, 'week ' . $i % 4]]);
            update_post_meta($id, 'distance', $i * 7);
            wp_insert_comment(['comment_post_ID' => $id, 'comment_content' => 'Well written.', 'comment_approved' => 1]);
        }""")


def woocommerce(site, source):
    target = site / "wp-content/plugins/woocommerce"
    shutil.copytree(source, target)
    print(php(site, """
        require ABSPATH . 'wp-admin/includes/admin.php';
        wp_set_current_user(1);
        $error = activate_plugin('woocommerce/woocommerce.php');
        if (is_wp_error($error)) echo $error->get_error_message();"""), end="")
    for _ in range(3):
        php(site, "require ABSPATH . 'wp-admin/includes/admin.php'; wp_set_current_user(1); do_action('admin_init');",
            "define('WP_ADMIN', true);")
    return php(site, """
        update_option('woocommerce_coming_soon', 'no');
        WC_Install::create_pages();
        flush_rewrite_rules();
        for ($i = 0; $i < 20; $i++) {
            $product = new WC_Product_Simple();
            $product->set_name("Saddle $i"); $product->set_regular_price(10 + $i); $product->set_status('publish');
            $id = $product->save();
        }
        echo $id;""").strip()


def owner(site):
    return php(site, """
        $end = time() + 86400; $token = WP_Session_Tokens::get_instance(1)->create($end);
        foreach ([LOGGED_IN_COOKIE => 'logged_in', AUTH_COOKIE => 'auth'] as $name => $scheme)
            echo $name, '=', wp_generate_auth_cookie(1, $end, $scheme, $token), '; ';""").strip("; ")


class Server:
    def __init__(self, directory, build, root):
        self.bench = build / "howdah"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        config, log = directory / f"{self.port}.toml", directory / f"{self.port}.log"
        config.write_text(
            f'listen = "127.0.0.1:{self.port}"\nuser = "www-data"\n[pool.www]\npm = "static"\nmax_children = 2\n'
            'shared_cache = "64M"\nphp_value = { "extension" = "apcu", "apc.shm_size" = "64M" }\n'
            f'[[site]]\nroot = "{root}"\nrecognise = false\nfront_controller = "/index.php"\n')
        with open(log, "w") as out:
            self.master = subprocess.Popen([build / "howdah", "serve", "--config", config], stdout=out, stderr=out)
        for _ in range(300):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 5).close()
                return
            time.sleep(0.1)
        sys.exit(f"{build}/howdah does not start:\n{log.read_text()}")

    def load(self, path, flags, seconds):
        """Median latency and the server's CPU time, in ms a page."""
        before = processes.cpu(processes.of([self.master.pid]))
        run = subprocess.run([self.bench, "bench", "-q", "-t", str(seconds), "-c", "1", "--no-ceiling", "--json", "-",
                              *flags, f"http://127.0.0.1:{self.port}{path}"], capture_output=True, text=True)
        used = processes.cpu(processes.of([self.master.pid])) - before
        good = old_and_new.good_answers(run, path)
        return good["latency"]["p50_ms"], used / good["count"] * 1e3


def cart(server, product):
    """The cookies of a visitor with one product in the cart."""
    cookies = {}
    for path in (f"/?add-to-cart={product}", "/cart/"):
        run = subprocess.run(["curl", "-s", "-D", "-", "-o", "/dev/null", "-H", "Host: wordpress.test", "-H",
                              "Cookie: " + "; ".join(f"{n}={v}" for n, v in cookies.items()),
                              f"http://127.0.0.1:{server.port}{path}"], capture_output=True, text=True, check=True)
        for line in run.stdout.splitlines():
            if line.lower().startswith("set-cookie:"):
                name, _, value = line.split(":", 1)[1].strip().split(";")[0].partition("=")
                cookies[name] = value
    return "; ".join(f"{n}={v}" for n, v in cookies.items())


def measure(servers, pages, turns):
    others = ARMS[1:]
    print(f"\n{'p50, ms':22} {ARMS[0]:>9}" + "".join(f"{arm:>30}" for arm in others) + f"{'shared cache / APCu':>26}")
    for name, path, cookies, body in pages:
        flags = {arm: ["-H", "Host: wordpress.test", "-H", f"Cookie: {cookies[arm]}", "--expect-body", body] for arm in ARMS}
        results = {arm: [] for arm in ARMS}
        for arm in ARMS:
            servers[arm].load(path, flags[arm], SECONDS)
        for turn in range(turns):
            for arm in ARMS[turn % 3:] + ARMS[:turn % 3]:
                results[arm].append(servers[arm].load(path, flags[arm], SECONDS))
        for part, what in ((0, name), (1, "  CPU")):
            times = {arm: [result[part] for result in results[arm]] for arm in ARMS}

            def ratio(arm, to):
                ratios = [a / b for a, b in zip(times[arm], times[to])]
                return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            print(f"{what:22} {statistics.median(times[ARMS[0]]):9.2f}"
                  + "".join(f"{statistics.median(times[arm]):12.2f} {ratio(arm, ARMS[0])}" for arm in others)
                  + f"{ratio(*others):>26}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("--turns", type=int, default=10)
    arguments.add_argument("--wordpress", type=pathlib.Path)
    arguments.add_argument("--woocommerce", type=pathlib.Path)
    given = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that the database ends too.
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        database = old_and_new.Wordpress(directory, given.wordpress)
        servers = {}
        try:
            site = directory / "wordpress"
            posts(site)
            product = woocommerce(site, given.woocommerce) if given.woocommerce else None
            cookie = dict.fromkeys(ARMS, owner(site))
            drop_in = DROP_IN.read_text()
            for arm, text in zip(ARMS, (None, drop_in, ON_APCU + drop_in.replace("howdah_cache_", "apcu_howdah_"))):
                root = directory / arm.replace(" ", "-")
                shutil.copytree(site, root)
                if text:
                    (root / "wp-content/object-cache.php").write_text(text)
                (root / "calls.php").write_text(CALLS)
                subprocess.run(["chown", "-R", "www-data", root / "wp-content"], check=True)
                servers[arm] = Server(directory, given.build.resolve(), root)
            print(f"{'one call':22} {'get':>8} {'APCu':>8}     ratio    {'set':>8} {'APCu':>8}     ratio")
            calls = f"http://127.0.0.1:{servers[ARMS[0]].port}/calls.php"
            print(subprocess.run(["curl", "-sf", calls], capture_output=True, text=True, check=True).stdout, end="")
            pages = [("home, logged in", "/", cookie, "wp-admin-bar"), ("a post, logged in", "/stage-20/", cookie, "wp-admin-bar"),
                     ("dashboard", "/wp-admin/index.php", cookie, "wpbody")]
            if product:
                pages.append(("cart, visitor", "/cart/", {arm: cart(servers[arm], product) for arm in ARMS}, "Saddle"))
            measure(servers, pages, given.turns)
        finally:
            for process in [*servers.values(), database]:
                process.master.terminate()
                process.master.wait()


if __name__ == "__main__":
    main()
