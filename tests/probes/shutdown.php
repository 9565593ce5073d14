<?php
// What still works when the request is ending, and after the client has its answer.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
$note = sys_get_temp_dir() . '/howdah-probe-note-' . md5($_SERVER['SERVER_SOFTWARE'] . PHP_SAPI . getmypid());
switch (how()) {
    case '':
        register_shutdown_function(function () {
            fact('first', true);
            fact('cwd', getcwd());
            fact('status', connection_status());
            fact('get_still_there', $_GET['keep'] ?? null);
            fact('headers_sent', headers_sent());
            register_shutdown_function(fn () => fact('registered_late', true));
        });
        register_shutdown_function(fn (string $with) => fact('second', $with), 'argument');
        fact('body', true);
        break;
    case 'error':
        register_shutdown_function(function () { fact('last', array_intersect_key(error_get_last() ?? [], ['type' => 1, 'message' => 1])); });
        undefined_in_shutdown_probe();
    case 'header': register_shutdown_function(fn () => header('X-From-Shutdown: 1')); echo "short\n"; break;
    case 'cwd': chdir('/'); register_shutdown_function(fn () => fact('cwd', getcwd())); break;
    case 'finish':
        @unlink($note);
        fact('before', true);
        if (!function_exists('fastcgi_finish_request')) {
            return;
        }
        $finished = fastcgi_finish_request();
        fact('never_sent', true);
        header('X-Never: 1');
        $again = fastcgi_finish_request();
        register_shutdown_function(function () use ($note, $finished, $again) {
            file_put_contents($note, json_encode([
                'finished' => $finished, 'again' => $again, 'status' => connection_status(), 'aborted' => connection_aborted(),
                'headers_sent' => headers_sent(), 'input' => strlen(file_get_contents('php://input')), 'session' => session_status(),
                'ob_level' => ob_get_level(),
            ]));
        });
        return;
    case 'finish_note':
        fact('note', function_exists('fastcgi_finish_request') ? json_decode((string) @file_get_contents($note), true) : 'no such function');
        @unlink($note);
        break;
    case 'finish_early_exit':
        echo "before\n";
        if (function_exists('fastcgi_finish_request')) { fastcgi_finish_request(); }
        exit("after\n");
    case 'finish_fatal':
        echo "before\n";
        if (function_exists('fastcgi_finish_request')) { fastcgi_finish_request(); }
        throw new RuntimeException('the client never sees this');
    case 'finish_buffers':
        ob_start(); ob_start(); echo 'in two buffers';
        if (function_exists('fastcgi_finish_request')) { fastcgi_finish_request(); }
        break;
}
