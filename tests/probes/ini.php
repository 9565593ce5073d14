<?php
// Every directive in force, from the one php.ini all servers were given.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
$all = ini_get_all(null, false);
ksort($all);
fact('ini', $all);
fact('loaded', php_ini_loaded_file());
fact('cfg.memory_limit', get_cfg_var('memory_limit'));
fact('cfg.none', get_cfg_var('no_such_directive'));
fact('set_perdir', @ini_set('upload_max_filesize', '1M'));
fact('set_system', @ini_set('allow_url_include', '1'));
fact('set_user', ini_set('precision', '7'));
fact('after', ini_get('precision'));
ini_restore('precision');
fact('restored', ini_get('precision'));
