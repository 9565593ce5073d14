<?php
// Language and time as a fresh request finds them.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
fact('locale', setlocale(LC_ALL, 0));
fact('conv', localeconv()['decimal_point']);
fact('timezone', date_default_timezone_get());
fact('date', date('Y-m-d H:i:s T', 86400 * 365));
fact('strtoupper', strtoupper("stra\xdfe \xe4"));
fact('float', 1.5 . '');
fact('intl', Locale::getDefault());
fact('set', setlocale(LC_ALL, 'C.UTF-8'));
fact('basename', basename("/tmp/\xc3\xa9t\xc3\xa9"));
