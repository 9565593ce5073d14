<?php
// The request body as a stream, beside what PHP parsed of it.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
fact('method', $_SERVER['REQUEST_METHOD']);
fact('content_type', $_SERVER['CONTENT_TYPE'] ?? null);
fact('content_length', $_SERVER['CONTENT_LENGTH'] ?? null);
fact('http_content_length', $_SERVER['HTTP_CONTENT_LENGTH'] ?? null);
fact('transfer_encoding', $_SERVER['HTTP_TRANSFER_ENCODING'] ?? null);
$input = fopen('php://input', 'rb');
$first = fread($input, 10);
fact('first', $first);
$rest = stream_get_contents($input);
fact('length', strlen($first . $rest));
fact('md5', md5($first . $rest));
fact('seek', [fseek($input, 2), fread($input, 3)]);
fact('again', md5((string) file_get_contents('php://input')) === md5($first . $rest));
fact('post', count($_POST));
fact('post_keys', array_slice(array_keys($_POST), 0, 5));
fact('stat', fstat($input)['size'] ?? null);
