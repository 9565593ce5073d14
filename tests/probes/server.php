<?php
// Every key of $_SERVER, and that the other ways to it agree.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
$server = $_SERVER;
fact('float_is_float', is_float($server['REQUEST_TIME_FLOAT']));
fact('time_is_now', abs($server['REQUEST_TIME'] - time()) < 5 && is_int($server['REQUEST_TIME']));
unset($server['REQUEST_TIME'], $server['REQUEST_TIME_FLOAT'], $server['REMOTE_PORT']);
fact('remote_port_is_number', ctype_digit($_SERVER['REMOTE_PORT'] ?? ''));
unset($server['PROBE_SETTING']); // in server_views.php
// Which of the process's variables a server lets through is told by env.php.
foreach (array_keys(getenv()) as $name) {
    if (!preg_match('/^(HTTP_|FCGI_|PATH_|REDIRECT_|SERVER_|REMOTE_|REQUEST_|SCRIPT_|DOCUMENT_|QUERY_|CONTENT_|GATEWAY_|CONTEXT_|PHP_SELF|PHP_AUTH|HTTPS|AUTH)/', $name)) {
        unset($server[$name]);
    }
}
ksort($server);
fact('server', $server);
