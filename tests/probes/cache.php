<?php
// A script that answers conditional requests by itself.
$modified = 'Sat, 01 Jan 2000 00:00:00 GMT';
header("Last-Modified: $modified");
header('ETag: "probe-1"');
header('Cache-Control: max-age=0');
if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '"probe-1"') {
    http_response_code(304);
    exit;
}
echo 'the full page';
