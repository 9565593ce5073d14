<?php
/**
 * The guestbook's front controller, which gets every URL that is not a file under public/.
 * It chooses the page that responds. The code of the pages is in src/, and their HTML is in
 * templates/.
 */
declare(strict_types=1);

require __DIR__ . '/../src/autoload.php';

use Guestbook\{Book, Failure, Pages, Session, Store, View};

$path = parse_url($_SERVER['REQUEST_URI'] ?? '/', PHP_URL_PATH);
$path = rawurldecode(is_string($path) ? $path : '/');
// This also works without a front controller in the server's configuration: /index.php/login is /login.
$path = preg_replace('~^/index\.php(?=/|$)~', '', $path) ?: '/';
$method = $_SERVER['REQUEST_METHOD'] ?? 'GET';

/** The pattern, the methods and the page of each route. The first route that matches is used. */
$routes = [
    ['~^/$~',                        ['GET'],         'listing'],
    ['~^/sign$~',                    ['GET', 'POST'], 'sign'],
    ['~^/entry/(\d{1,9})$~',         ['GET'],         'entry'],
    ['~^/entry/(\d{1,9})/edit$~',    ['GET', 'POST'], 'edit'],
    ['~^/entry/(\d{1,9})/delete$~',  ['POST'],        'delete'],
    ['~^/(picture|thumb)/([0-9a-f]{32}\.(?:jpg|png|webp))$~', ['GET'], 'picture'],
    ['~^/login$~',                   ['GET', 'POST'], 'login'],
    ['~^/logout$~',                  ['POST'],        'logout'],
    ['~^/live$~',                    ['GET'],         'live'],
    ['~^/live/stream$~',             ['GET'],         'stream'],
    ['~^/about$~',                   ['GET'],         'about'],
    ['~^/request$~',                 ['GET'],         'request'],
    ['~^/api/entries$~',             ['GET'],         'api'],
];

$view = new View(__DIR__ . '/../templates');
try {
    $store = Store::open(getenv('DEMO_DATA') ?: dirname(__DIR__) . '/data');
    $session = new Session($store->directory . '/sessions');
    $pages = new Pages(new Book($store), $session, $view, $store);
    $view->share(['session' => $session, 'path' => $path]);

    foreach ($routes as [$pattern, $methods, $page]) {
        if (!preg_match($pattern, $path, $match)) {
            continue;
        }
        $asked = $method === 'HEAD' ? 'GET' : $method;
        if (!in_array($asked, $methods, true)) {
            header('Allow: ' . implode(', ', $methods));
            throw new Failure(405, "This page does not accept $method requests.");
        }
        $pages->$page(...array_slice($match, 1));
        return;
    }
    throw new Failure(404, 'There is no such page in this book.');
} catch (Failure $failure) {
    $view->fail($failure->status, $failure->getMessage());
} catch (Throwable $error) {
    error_log("guestbook: $error");
    $view->fail(500, 'An error occurred in the guestbook. The error log describes it.');
}
