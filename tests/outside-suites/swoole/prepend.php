<?php
// Loaded before each of Swoole's tests (auto_prepend_file): what the tests' client side needs of Swoole
// and `howdah run` has not. Nothing here stands for a part of the server: what runs in the server's
// process and wants coroutines ends the test as skipped.

namespace Suite;

/** Which side of a test this process is, and how it says that it cannot be run. */
final class Side
{
    /** In the process of a test's clients. Elsewhere the server's script is everything. */
    public static bool $client = false;

    /** Ends the test: Howdah does not have what it uses, or its client side is not written here. */
    public static function missing(string $what): never
    {
        file_put_contents(getenv('SUITE_MISSING'), "$what\n", FILE_APPEND);
        exit(1);
    }

    public static function client(string $what): void
    {
        self::$client || self::missing("$what in the server");
    }
}

foreach ([
    'SWOOLE_USE_SHORTNAME' => true, 'SWOOLE_DEBUG' => false, 'SWOOLE_SOCK_SYNC' => false, 'SWOOLE_SOCK_ASYNC' => true,
    'SWOOLE_HOOK_NATIVE_CURL' => 4096, 'SWOOLE_HOOK_CURL' => 2048, 'SWOOLE_HOOK_SLEEP' => 64, 'SWOOLE_HOOK_TCP' => 2,
    'SWOOLE_HTTP_CLIENT_ESTATUS_CONNECT_FAILED' => -1, 'SWOOLE_HTTP_CLIENT_ESTATUS_REQUEST_TIMEOUT' => -2,
    'SWOOLE_HTTP_CLIENT_ESTATUS_SERVER_RESET' => -3,
] as $name => $value) {
    defined($name) || define($name, $value);
}

require __DIR__ . '/loop.php';
require __DIR__ . '/connection.php';
require __DIR__ . '/http_client.php';
require __DIR__ . '/names.php';
require __DIR__ . '/process_manager.php';

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'SwooleTest\\')) {
        $file = TESTS_LIB_PATH . '/src/' . strtr(substr($class, 11), '\\', '/') . '.php';
        is_file($file) && require $file;
    } elseif (preg_match('/^(Swoole|Co)\\\\/i', $class)) {
        Side::missing("class $class");
    }
});
