<?php
// Sessions: the cookie, the cache headers, and that data is there again.
require_once __DIR__ . '/facts.php';
header('Content-Type: text/plain');
if (isset($_GET['limiter'])) {
    session_cache_limiter($_GET['limiter']);
}
session_start();
$_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
fact('count', $_SESSION['count']);
fact('name', session_name());
fact('id_length', strlen(session_id()));
fact('cookie_params', session_get_cookie_params());
fact('module', session_module_name());
if (how() === 'regenerate') { $old = session_id(); session_regenerate_id(true); fact('changed', $old !== session_id()); }
if (how() === 'destroy') { fact('destroyed', session_destroy()); }
if (how() === 'progress') { fact('progress', is_array($_SESSION[ini_get('session.upload_progress.prefix') . 'probe'] ?? null)); }
