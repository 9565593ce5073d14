<?php
// What PHP made of the query, the cookies, the form and the uploads.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
fact('get', $_GET);
fact('post', $_POST);
fact('cookie', $_COOKIE);
fact('request', $_REQUEST);
$files = $_FILES;
array_walk_recursive($files, function (&$value, $key) {
    if (is_string($value) && str_contains($value, '/php') && is_file($value)) {
        $value = 'file ' . filesize($value) . ' ' . md5_file($value) . (is_uploaded_file($value) ? ' uploaded' : ' not uploaded') . sprintf(' %o', fileperms($value) & 0777);
    }
});
fact('files', $files);
