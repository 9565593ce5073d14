<?php
// Directives from .user.ini, and which of them it may not set.
require_once __DIR__ . (is_file(__DIR__ . '/../facts.php') ? '/../facts.php' : '/../../facts.php');
header('Content-Type: text/plain');
foreach (['memory_limit', 'upload_max_filesize', 'precision', 'auto_prepend_file', 'error_reporting', 'disable_functions', 'user_agent', 'post_max_size', 'display_errors'] as $name) {
    fact($name, ini_get($name));
    fact("global.$name", ini_get_all(null, true)[$name]['global_value'] ?? null);
}
