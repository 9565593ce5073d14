<?php
// The origin server of http-tests/cache-tests (https://github.com/http-tests/cache-tests,
// test-engine/server), in PHP: a test configures it by PUT /config/ID, asks it at /test/ID, and reads
// at /state/ID what it was asked. scripts/cache-tests.sh runs the suite against it.
//
// What PHP cannot do is left out: 102, and a Content-Length that is not the body's (the server cuts
// the body, and the cache then does not keep it).
$path = explode('/', trim(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH), '/'));
[$what, $uuid] = [$path[0], preg_replace('/[^A-Za-z0-9-]/', '', $path[1] ?? '')];
$dir = getenv('CACHE_TESTS_STATE');
if ($what === 'config') {
    if ($_SERVER['REQUEST_METHOD'] !== 'PUT') { http_response_code(405); exit; }
    file_put_contents("$dir/$uuid.config", file_get_contents('php://input'));
    http_response_code(201); echo 'OK'; exit;
}
$lock = fopen("$dir/$uuid.lock", 'c'); flock($lock, LOCK_EX);
$state = json_decode(@file_get_contents("$dir/$uuid.state") ?: '[]', true);
if ($what === 'state') {
    if (!is_file("$dir/$uuid.state")) { http_response_code(404); exit; }
    header('Content-Type: text/plain'); header('Cache-Control: no-store'); echo json_encode($state); exit;
}
$config = json_decode(@file_get_contents("$dir/$uuid.config") ?: 'null', true);
if ($config === null) { http_response_code(409); exit; }
$srv = count($state) + 1;
$cli = isset($_SERVER['HTTP_REQ_NUM']) ? (int)$_SERVER['HTTP_REQ_NUM'] : 0;
$num = $cli ?: $srv;
$req = $config[$num - 1] ?? null;
if ($req === null) { http_response_code(409); exit; }
if (isset($req['response_pause'])) usleep((int)($req['response_pause'] * 1e6));
foreach ($req['interim_responses'] ?? [] as $interim) {
    foreach ($interim[1] ?? [] as $h) header("$h[0]: $h[1]");
    if (function_exists('headers_send') && $interim[0] == 103) headers_send(103);
    foreach ($interim[1] ?? [] as $h) header_remove($h[0]);
}
$previous = $config[$num - 2] ?? null;
$status = $req['response_status'] ?? [200, 'OK'];
function configured($headers, $name) { $r = null; foreach ($headers ?? [] as $h) if (strcasecmp($h[0], $name) === 0) $r = $h[1]; return $r; }
$now = (int)(microtime(true) * 1000);
function when($now, $delta, $format = null) {
    $t = intdiv($now, 1000) + $delta;
    return $format === 'rfc850' ? gmdate('l, d-M-y H:i:s', $t) . ' GMT' : gmdate('D, d M Y H:i:s', $t) . ' GMT';
}
if (str_ends_with($req['expected_type'] ?? '', 'validated')) {
    $lm = null; foreach ($state as $s) if ($s['request_num'] == $num - 1 || true) foreach ($s['response_headers'] as $h) if (strcasecmp($h[0], 'Last-Modified') === 0) $lm = $h[1];
    $tag = configured($previous['response_headers'] ?? [], 'ETag');
    if ($lm && ($_SERVER['HTTP_IF_MODIFIED_SINCE'] ?? null) === $lm) $status = [304, 'Not Modified'];
    if ($tag && ($_SERVER['HTTP_IF_NONE_MATCH'] ?? null) === $tag) $status = [304, 'Not Modified'];
    if ($status[0] !== 304) $status = [999, '304 Not Generated'];
}
header_remove('X-Powered-By');
$out = [['Server-Base-Url', $_SERVER['REQUEST_URI']], ['Server-Request-Count', $srv], ['Client-Request-Count', $cli ?: 'NaN'], ['Server-Now', $now]];
$saved = []; $type = false;
foreach ($req['response_headers'] ?? [] as $h) {
    $name = strtolower($h[0]);
    if (in_array($name, ['date', 'expires', 'last-modified', 'if-modified-since', 'if-unmodified-since']) && is_int($h[1]))
        $h[1] = when($now, $h[1], in_array($name, $req['rfc850date'] ?? []) ? 'rfc850' : null);
    if (in_array($name, ['location', 'content-location']) && !empty($req['magic_locations']))
        $h[1] = $_SERVER['REQUEST_URI'] . ($h[1] ? "/$h[1]" : '');
    $out[] = [$h[0], $h[1]];
    $type = $type || $name === 'content-type';
    if (count($h) < 3 || $h[2] === true) {
        $same = array_values(array_filter($out, fn($o) => strtolower($o[0]) === $name));
        $saved[$h[0]] = count($same) > 1 ? array_column($same, 1) : $h[1];
    }
}
if (!$type) $out[] = ['Content-Type', 'text/plain'];
$headers = [];
foreach ($_SERVER as $k => $v) if (str_starts_with($k, 'HTTP_')) $headers[strtolower(strtr(substr($k, 5), '_', '-'))] = $v;
$state[] = ['request_num' => $cli, 'request_method' => $_SERVER['REQUEST_METHOD'], 'request_headers' => $headers,
    'response_headers' => array_map(fn($k) => [$k, $saved[$k]], array_keys($saved))];
file_put_contents("$dir/$uuid.state", json_encode($state));
$out[] = ['Request-Numbers', implode(' ', array_map(fn($s) => $s['request_num'] ?: 'NaN', $state))];
header("HTTP/1.1 $status[0] $status[1]", true, $status[0]);
foreach ($out as $i => $h) header("$h[0]: $h[1]", false);
if (!$type) header('Content-Type: text/plain', true);
if (!empty($req['disconnect'])) { flock($lock, LOCK_UN); posix_kill(getmypid(), 9); }
if (!in_array($status[0], [204, 304])) echo $req['response_body'] ?? $uuid;
