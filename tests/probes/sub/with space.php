<?php
// A script whose name needs encoding in a URL.
require_once __DIR__ . '/../facts.php';
header('Content-Type: text/plain');
foreach (['SCRIPT_NAME', 'SCRIPT_FILENAME', 'REQUEST_URI', 'DOCUMENT_URI', 'PHP_SELF', 'PATH_INFO', 'PATH_TRANSLATED', 'ORIG_PATH_INFO', 'QUERY_STRING', 'DOCUMENT_ROOT'] as $key) {
    fact($key, $_SERVER[$key] ?? null);
}
fact('cwd', getcwd());
