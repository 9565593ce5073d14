<?php
// Where the script is and what relative names mean.
require_once __DIR__ . '/../facts.php';
header('Content-Type: text/plain');
fact('cwd', getcwd());
fact('file', __FILE__);
fact('dir', __DIR__);
fact('included', get_included_files());
fact('include_path', get_include_path());
fact('relative_include', (include '../dir/value.inc'));
fact('dot_include', (include './../dir/value.inc'));
fact('relative_open', trim((string) file_get_contents('../dir/plain.txt')));
fact('realpath', realpath('.'));
fact('script_filename', $_SERVER['SCRIPT_FILENAME']);
fact('getlastmod_is_int', is_int(getlastmod()));
fact('php_self', $_SERVER['PHP_SELF']);
fact('umask', umask());
fact('temp_dir', sys_get_temp_dir());
