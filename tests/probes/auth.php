<?php
// Credentials: what PHP decodes, and that it leaves the rest to the script.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
foreach (['PHP_AUTH_USER', 'PHP_AUTH_PW', 'PHP_AUTH_DIGEST', 'AUTH_TYPE', 'REMOTE_USER', 'HTTP_AUTHORIZATION', 'REDIRECT_HTTP_AUTHORIZATION', 'HTTP_PROXY_AUTHORIZATION'] as $key) {
    fact($key, $_SERVER[$key] ?? null);
}
fact('getallheaders', array_change_key_case(getallheaders())['authorization'] ?? null);
