#!/usr/bin/env python3
"""Measures what putting back a booted WordPress could save, and what it would have to put back.

    scripts/boot-restore.py [--turns N] [--wordpress DIR] [--reads FILE] [PLUGIN ...]

Compiles boot-restore/requests.c and copies.c (libphp8.2-embed, php8.2-dev, gcc), installs Debian's WordPress
on a private MariaDB (scripts/setup-debian.sh test) and asks for its home page in one process of libphp, for a
visitor and for the owner logged in. PLUGIN is a directory with a plugin's code, which is copied and switched
on; with any, everything is measured without and with them. DIR is another WordPress than Debian's. FILE gets
every read and call, a line each. Needs root and Linux 6.7 for the pages written.
"""
import argparse, collections, importlib, json, pathlib, re, shutil, signal, statistics, subprocess, sys, tempfile

old_and_new = importlib.import_module("old-and-new")
php = old_and_new.php
HERE = pathlib.Path(__file__).resolve().parent
MARKS = ["rinit", "core", "plugins", "theme", "init begins", "init", "wp_loaded", "template", "shutdown", "script", "end"]
PLUGIN = """<?php
if (function_exists('boot_mark')) {
    boot_mark('core');
    foreach ([['plugins_loaded', PHP_INT_MIN, 'plugins'], ['after_setup_theme', PHP_INT_MAX, 'theme'],
              ['init', PHP_INT_MIN, 'init begins'], ['init', PHP_INT_MAX, 'init'], ['wp_loaded', PHP_INT_MAX, 'wp_loaded'],
              ['template_redirect', PHP_INT_MIN, 'template'], ['shutdown', PHP_INT_MIN, 'shutdown']] as [$hook, $at, $mark]) {
        add_action($hook, function () use ($mark) { boot_mark($mark); }, $at);
    }
}
"""
VISITOR = ["HTTP_HOST=wordpress.test", "SERVER_NAME=wordpress.test", "SERVER_PORT=80", "SERVER_PROTOCOL=HTTP/1.1",
           "REQUEST_METHOD=GET", "REQUEST_URI=/", "QUERY_STRING=", "REMOTE_ADDR=127.0.0.1", "SCRIPT_NAME=/index.php",
           "PHP_SELF=/index.php", "HTTP_USER_AGENT=Mozilla/5.0", "HTTP_ACCEPT=text/html", "SERVER_SOFTWARE=Howdah"]


def compile_programs(directory):
    includes = subprocess.run(["php-config8.2", "--includes"], capture_output=True, text=True, check=True).stdout.split()
    for name, flags in (("requests", [*includes, "-lphp8.2"]), ("copies", [])):
        subprocess.run(["gcc", "-O2", "-Wall", "-o", directory / name, HERE / "boot-restore" / f"{name}.c", *flags],
                       check=True)


def run(directory, mode, requests, variables):
    """Lists of fields, one list of them for each request."""
    command = ["taskset", "-c", "1", directory / "requests", mode, directory / "wordpress", str(requests), *variables]
    answer = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=directory / "wordpress")
    if answer.returncode:
        sys.exit(f"{mode}: {answer.stderr[-3000:]}")
    (directory / f"{mode}.err").write_text(answer.stderr)
    found, lines = [], []
    for line in answer.stdout.splitlines():
        fields = line.split("\t")
        if fields[0] == "#":
            found.append((lines, int(fields[1])))
            lines = []
        else:
            lines.append(fields)
    return found


def times(directory, turns, variables):
    rows = collections.defaultdict(list)
    for lines, size in run(directory, "time", turns, variables):
        for name, wall, cpu, faults, memory in lines:
            rows[name].append((int(wall) / 1e3, int(cpu) / 1e3, int(faults), int(memory)))
        rows["bytes"].append(size)
    print("\n| until | wall, µs | CPU, µs | CPU in all, % | page faults | Zend heap in use, KB |\n|---|---|---|---|---|---|")
    middle = {name: [statistics.median(row[i] for row in rows[name]) for i in range(4)] for name in MARKS if rows[name]}
    total = sum(row[1] for row in middle.values())
    done = 0
    for name, (wall, cpu, faults, memory) in middle.items():
        done += cpu
        print(f"| {name} | {wall:.0f} | {cpu:.0f} | {done / total:.1%} | {faults:.0f} | {memory / 1024:.0f} |")
    whole = [[sum(rows[name][i][part] for name in MARKS if rows[name]) for i in range(len(rows["end"]))] for part in (0, 1)]
    print(f"| the whole | {statistics.median(whole[0]):.0f} | {statistics.median(whole[1]):.0f} |"
          f" fastest {min(whole[1]):.0f} | | {statistics.median(rows['bytes']):.0f} bytes of page |")


def pages(directory, turns, variables):
    rows = collections.defaultdict(list)
    for lines, _ in run(directory, "pages", min(turns, 20), variables):
        for name, nanoseconds, memory, *kinds in lines:
            rows[name].append([int(nanoseconds) / 1e3, *(int(kind.split("=")[1]) for kind in kinds)])
            names = [kind.split("=")[0] for kind in kinds]
    print(f"\n| pages written until | {' | '.join(names)} | all | KB | scan, µs |\n|---{'|---' * (len(names) + 3)}|")
    for name in MARKS:
        if rows[name]:
            scan, *counts = (statistics.median(column) for column in zip(*rows[name]))
            print(f"| {name} | {' | '.join(f'{count:.0f}' for count in counts)} | {sum(counts):.0f} |"
                  f" {sum(counts) * 4:.0f} | {scan:.0f} |")


def copies(directory, turns, variables):
    rows = collections.defaultdict(list)
    for lines, _ in run(directory, "copies", min(turns, 40), variables):
        for name, *numbers in lines:
            kinds = [kind.split("=") for kind in numbers[5:]]
            rows[name].append([*map(int, numbers[:5]), *(int(count) for _, count in kinds)])
            names = [kind for kind, _ in kinds]
    print(f"\n| protected, until | CPU, µs | scan, µs | copy, µs | {' | '.join(names)} | all | KB |\n"
          f"|---{'|---' * (len(names) + 5)}|")
    for name in ("init", "script", "end"):
        cpu, scan, copy, everything, present, *counts = (statistics.median(column) for column in zip(*rows[name]))
        print(f"| {name} | {cpu / 1e3:.0f} | {scan / 1e3:.0f} | {copy / 1e3:.0f} |"
              f" {' | '.join(f'{count:.0f}' for count in counts)} | {sum(counts):.0f} | {sum(counts) * 4:.0f} |")
        if name == "init":
            first = f"{present:.0f} pages, {present * 4:.0f} KB, copied in {everything / 1e3:.0f} µs"
    print(f"\nall private memory at init: {first}")


SUPERGLOBALS = {f"${name}" for name in "_GET _POST _COOKIE _REQUEST _SERVER _FILES _ENV _SESSION".split()}
STATEFUL = re.compile(r"^(time|microtime|hrtime|date|gmdate|mt_rand|rand|random_int|random_bytes|uniqid|lcg_value|getenv|"
                      r"filter_input.*|filter_has_var|getallheaders|apache_request_headers|header|setcookie|headers_sent|"
                      r"session_.*|file_exists|is_file|is_dir|is_readable|is_writable|stat|filemtime|filesize|glob|opendir|"
                      r"scandir|realpath|fopen|file_get_contents|file_put_contents|mysqli_.*|curl_.*|getmypid|gethostname|"
                      r"register_shutdown_function|set_error_handler|set_exception_handler|spl_autoload_register|ob_start|"
                      r"setlocale|ini_set|set_time_limit|mb_internal_encoding|date_default_timezone_set|ignore_user_abort)$")


def reads(directory, variables, title, out):
    (lines, _), = run(directory, "reads", 1, variables)
    fetched, called, queries = collections.defaultdict(set), collections.defaultdict(collections.Counter), []
    late = False
    for mark, what, name, key, place in (line for line in lines if len(line) == 5):
        late = late or mark in MARKS[MARKS.index("init"):-1]  # "end" is the previous request's.
        place = place.replace(f"{directory}/wordpress/", "")
        out.write("\t".join([title, "after" if late else "before", what, name, key, place]) + "\n")
        if late:
            continue
        plugin = re.match(r"wp-content/plugins/([^/]+)", place)
        owner = plugin[1] if plugin else "core"
        if what == "call" and STATEFUL.match(name):
            called[owner][name] += 1
        elif what != "call" and name in SUPERGLOBALS:
            fetched[owner].add(f"{name}[{key}]" + (" written" if what == "write" else ""))
        if name == "mysqli_query":
            queries.append(key)
    print("\n| before the end of init | superglobals | calls |\n|---|---|---|")
    for owner in sorted({*fetched, *called}):
        calls = (f"{name} {count}" for name, count in sorted(called[owner].items()))
        print(f"| {owner} | {', '.join(sorted(fetched[owner]))} | {', '.join(calls)} |")
    replay(directory, queries)


def replay(directory, queries):
    """What it takes to connect and to ask the database again all that the boot has asked."""
    script = directory / "replay.php"
    script.write_text(f"""<?php
        $queries = {json.dumps(json.dumps(queries))};
        $took = [];
        for ($i = 0; $i < 200; $i++) {{
            $start = hrtime(true);
            $link = mysqli_connect(null, 'wordpress', 'database password', 'wordpress', 0, '{directory}/mariadb.sock');
            $connected = hrtime(true);
            foreach (json_decode($queries) as $query) {{
                $result = $link->query($query);
                if ($result instanceof mysqli_result) md5(serialize($result->fetch_all()));
            }}
            $took['connect'][] = $connected - $start;
            $took['queries'][] = hrtime(true) - $connected;
            $link->close();
        }}
        foreach ($took as $what => $times) {{ sort($times); printf("%s %d, ", $what, $times[100] / 1e3); }}""")
    answer = subprocess.run(["taskset", "-c", "1", "php", script], capture_output=True, text=True)
    print(f"\n{len(queries)} queries before the end of init; again, median in µs: {answer.stdout}{answer.stderr}")
    for query in queries:
        print(f"  {query[:150]}")


def measure(directory, turns, cookie, title, out):
    print(f"\n# {title}")
    for who, variables in (("visitor", VISITOR), ("logged in", [*VISITOR, f"HTTP_COOKIE={cookie}"])):
        print(f"\n## {title}, {who}")
        times(directory, turns, variables)
        pages(directory, turns, variables)
        copies(directory, turns, variables)
        reads(directory, variables, f"{title}, {who}", out)
        sys.stdout.flush()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--turns", type=int, default=300)
    arguments.add_argument("--wordpress", type=pathlib.Path)
    arguments.add_argument("--reads", type=pathlib.Path)
    arguments.add_argument("plugins", nargs="*", type=pathlib.Path)
    given = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that the database ends too.
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        compile_programs(directory)
        database = old_and_new.Wordpress(directory, given.wordpress)
        site = directory / "wordpress"
        try:
            (site / "wp-content/mu-plugins").mkdir(exist_ok=True)
            (site / "wp-content/mu-plugins/marks.php").write_text(PLUGIN)
            cookie = php(site, "$end = time() + 86400; echo LOGGED_IN_COOKIE, '=', "
                               "wp_generate_auth_cookie(1, $end, 'logged_in', WP_Session_Tokens::get_instance(1)->create($end));")
            out = open(given.reads or "/dev/null", "w")
            measure(directory, given.turns, cookie, "no plugin", out)
            for plugin in given.plugins:
                target = site / "wp-content/plugins" / plugin.name
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(plugin, target)
                file = next(file for file in sorted(target.glob("*.php"))
                            if "Plugin Name:" in file.read_text(errors="replace")[:8192])
                print(f"switching on {plugin.name}", php(site, f"""
                    require ABSPATH . 'wp-admin/includes/admin.php';
                    wp_set_current_user(1);
                    $error = activate_plugin('{plugin.name}/{file.name}');
                    if (is_wp_error($error)) echo $error->get_error_message();"""))
            if given.plugins:
                for _ in range(3):  # In the dashboard, where some finish their installation, perhaps with a redirect.
                    php(site, """require ABSPATH . 'wp-admin/includes/admin.php'; wp_set_current_user(1);
                                 do_action('admin_init');""", "define('WP_ADMIN', true);")
                for _ in range(3):  # They make their tables and options.
                    run(directory, "time", 1, VISITOR)
                measure(directory, given.turns, cookie, f"{len(given.plugins)} plugins", out)
        finally:
            database.master.terminate()
            database.master.wait()


if __name__ == "__main__":
    main()
