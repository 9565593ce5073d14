<?php
// Request headers by their own names.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
$headers = getallheaders();
ksort($headers);
fact('headers', $headers);
fact('same', getallheaders() === apache_request_headers());
