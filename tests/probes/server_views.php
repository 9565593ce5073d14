<?php
// The other ways to the meta-variables must agree with $_SERVER.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
$from_function = function (): ?string { return $_SERVER['REQUEST_METHOD'] ?? null; };
fact('in_function', $from_function());
fact('globals', isset($GLOBALS['_SERVER']) ? $GLOBALS['_SERVER']['REQUEST_METHOD'] : null);
$name = '_SERVER';
fact('variable_variable', isset($$name) ? $$name['REQUEST_METHOD'] : null);
foreach (['REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING', 'SCRIPT_NAME', 'HTTP_HOST', 'HTTP_X_PROBE', 'REMOTE_ADDR', 'SERVER_PROTOCOL', 'NO_SUCH'] as $key) {
    fact("filter_input.$key", filter_input(INPUT_SERVER, $key));
    fact("filter_has_var.$key", filter_has_var(INPUT_SERVER, $key));
}
fact('filter_get', filter_input(INPUT_GET, 'n', FILTER_VALIDATE_INT));
fact('filter_post', filter_input(INPUT_POST, 'n', FILTER_VALIDATE_INT));
fact('filter_cookie', filter_input(INPUT_COOKIE, 'c'));
$_SERVER['REQUEST_METHOD'] = 'CHANGED';
$_GET['n'] = 'changed';
fact('filter_sees_the_original', [filter_input(INPUT_SERVER, 'REQUEST_METHOD'), filter_input(INPUT_GET, 'n')]);
fact('getenv.REQUEST_METHOD', getenv('REQUEST_METHOD'));
fact('getenv.HTTP_HOST', getenv('HTTP_HOST'));
fact('getenv.PROBE_SETTING', getenv('PROBE_SETTING'));
fact('getenv.NO_SUCH', getenv('NO_SUCH'));
fact('getenv_all.PROBE_SETTING', getenv()['PROBE_SETTING'] ?? null);
fact('server.PROBE_SETTING', $_SERVER['PROBE_SETTING'] ?? null);
fact('env', $_ENV);
