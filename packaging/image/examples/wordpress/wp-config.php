<?php
// Takes WordPress' settings from the container's environment.
$of = fn (string $name, string $usual = '') => getenv($name) === false ? $usual : getenv($name);

define('DB_HOST', $of('DB_HOST', 'db'));
define('DB_NAME', $of('DB_NAME', 'wordpress'));
define('DB_USER', $of('DB_USER', 'wordpress'));
define('DB_PASSWORD', $of('DB_PASSWORD'));
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
$table_prefix = $of('DB_PREFIX', 'wp_');

// All replicas need the same secret. If it is not set, each new container logs all users out.
$secret = $of('WORDPRESS_SECRET', bin2hex(random_bytes(32)));
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {
    define($name . '_KEY', hash_hmac('sha256', $name . '_KEY', $secret));
    define($name . '_SALT', hash_hmac('sha256', $name . '_SALT', $secret));
}

// To change the code, build a new image. With WORDPRESS_CRON=off, run cron as a job: howdah php wp-cron.php.
define('DISALLOW_FILE_MODS', true);
define('DISABLE_WP_CRON', $of('WORDPRESS_CRON', 'on') === 'off');

if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
