<?php
// Counts checks, and prints `ok N checks` or the failures when the script ends.
declare(strict_types=1);

function check(string $sentence, mixed $expected, mixed $actual): void
{
    static $checks = 0, $failures = [];
    if ($checks++ === 0) {
        register_shutdown_function(static function () use (&$checks, &$failures): void {
            $error = error_get_last();
            if (($error['type'] ?? 0) & (E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR)) {
                $failures[] = 'The script died: ' . $error['message'];
            }
            echo $failures === [] ? "ok $checks checks\n" : implode("\n", $failures) . "\n";
        });
    }
    if ($expected !== $actual) {
        $failures[] = "$sentence: expected " . var_export($expected, true) . ', got ' . var_export($actual, true);
    }
}

/** Waits until the value is no more, for five seconds at most. */
function wait_until_gone(callable $exists): void
{
    for ($end = hrtime(true) + 5e9; $exists() && hrtime(true) < $end;) {
        usleep(10_000);
    }
}

function thrown(callable $call): ?string
{
    try {
        $call();
        return null;
    } catch (Throwable $error) {
        return get_class($error);
    }
}
