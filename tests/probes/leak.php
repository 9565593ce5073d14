<?php
// Changes everything a process could remember, then looks whether the next request
// in the same process still sees it.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
if (how() === 'change') {
    setlocale(LC_ALL, 'C.UTF-8');
    putenv('PROBE_LEAK=1');
    putenv('PATH=/nowhere');
    chdir('/');
    umask(0077);
    ini_set('memory_limit', '77M');
    ini_set('precision', '3');
    date_default_timezone_set('Asia/Tokyo');
    mb_internal_encoding('ISO-8859-1');
    set_error_handler(fn () => true);
    set_time_limit(3);
    ignore_user_abort(true);
    error_reporting(0);
    libxml_use_internal_errors(true);
    mb_substitute_character(0x3f);
    spl_autoload_register(fn () => null);
    stream_wrapper_unregister('ftp');
    stream_context_set_default(['http' => ['timeout' => 1]]);
    $GLOBALS['leak'] = $_SERVER['LEAK'] = $_ENV['LEAK'] = $_GET['LEAK'] = 1;
    define('PROBE_LEAK', 1);
    eval('class ProbeLeak { public static $x = 1; }');
    ob_start();
    http_response_code(207);
    assert_options(ASSERT_ACTIVE, 0);
    mt_srand(7);
}
fact('locale', setlocale(LC_ALL, 0));
fact('putenv', getenv('PROBE_LEAK'));
fact('path_is_usual', getenv('PATH') !== '/nowhere');
fact('cwd', getcwd());
fact('umask', umask());
fact('memory_limit', ini_get('memory_limit'));
fact('precision', ini_get('precision'));
fact('timezone', date_default_timezone_get());
fact('encoding', mb_internal_encoding());
fact('max_execution_time', ini_get('max_execution_time'));
fact('ignore', ignore_user_abort());
fact('reporting', error_reporting());
fact('libxml', libxml_use_internal_errors());
fact('substitute', mb_substitute_character());
fact('autoloaders', count(spl_autoload_functions()));
fact('ftp_wrapper', in_array('ftp', stream_get_wrappers(), true));
fact('global', isset($GLOBALS['leak']));
fact('superglobals', [isset($_SERVER['LEAK']), isset($_ENV['LEAK']), isset($_GET['LEAK'])]);
fact('constant', defined('PROBE_LEAK'));
fact('class', class_exists('ProbeLeak', false));
fact('level', ob_get_level());
fact('code', http_response_code());
fact('peak_is_small', memory_get_peak_usage() < 8 << 20);
if (how() === 'change') {
    ob_end_flush();
}
