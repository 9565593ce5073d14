<?php
declare(strict_types=1);

namespace Guestbook;

/** The pages of the guestbook, with one method for each route of public/index.php. */
final class Pages
{
    private const LIMITS = ['author' => 60, 'place' => 60, 'message' => 2000];

    private readonly Pictures $pictures;

    public function __construct(
        private readonly Book $book,
        private readonly Session $session,
        private readonly View $view,
        Store $store,
    ) {
        $this->pictures = new Pictures($store);
    }

    public function listing(): void
    {
        $search = self::text($_GET, 'q', 100);
        $list = $this->book->list((int) self::text($_GET, 'page', 9), $search);
        $this->view->page('listing', 'Guestbook', $list + ['search' => $search]);
    }

    /**
     * The form has a page of its own, because its token needs a session. The listing is the same for every visitor
     * without a session, so a page cache may store it.
     */
    public function sign(): void
    {
        if ($_SERVER['REQUEST_METHOD'] !== 'POST') {
            $this->view->page('sign', 'Sign the book', ['draft' => [], 'problems' => []]);
            return;
        }
        // If a body is longer than post_max_size, PHP gets no field at all. Report this instead of a missing token.
        if ($_POST === [] && (int) ($_SERVER['CONTENT_LENGTH'] ?? 0) > 0) {
            throw new Failure(413, 'The form is larger than this server accepts.');
        }
        $this->session->checkToken();
        [$draft, $problems] = $this->draft();
        $picture = null;
        if ($problems === []) {
            try {
                $picture = $this->pictures->take($_FILES['picture'] ?? null);
            } catch (Failure $failure) {
                $problems['picture'] = $failure->getMessage();
            }
        }
        if ($problems !== []) {
            $this->view->page('sign', 'Sign the book', compact('draft', 'problems'), 422);
            return;
        }
        $id = $this->book->add($draft, $picture);
        $this->session->say('Thank you, your entry is in the book.');
        $this->go("/entry/$id");
    }

    public function entry(string $id): void
    {
        $entry = $this->book->entry((int) $id);
        $this->view->page('entry', "Entry by {$entry['author']}", ['entry' => $entry, 'alone' => true]);
    }

    public function edit(string $id): void
    {
        $this->session->requireKeeper();
        $entry = $this->book->entry((int) $id);
        $problems = [];
        if ($_SERVER['REQUEST_METHOD'] === 'POST') {
            $this->session->checkToken();
            [$draft, $problems] = $this->draft();
            if ($problems === []) {
                $this->book->change((int) $id, $draft);
                $this->session->say('The entry has been changed.');
                $this->go("/entry/$id");
                return;
            }
            $entry = $draft + $entry;
        }
        $this->view->page('edit', "Edit entry $id", compact('entry', 'problems'), $problems === [] ? 200 : 422);
    }

    public function delete(string $id): void
    {
        $this->session->requireKeeper();
        $this->session->checkToken();
        $entry = $this->book->entry((int) $id);
        $this->book->delete((int) $id);
        if ($entry['picture'] !== null && !$this->book->shows($entry['picture'])) {
            $this->pictures->remove($entry['picture']);
        }
        $this->session->say('The entry has been deleted.');
        $this->go('/');
    }

    /** A stored picture or thumbnail. Names are never reused, so clients may cache a picture for ever. */
    public function picture(string $kind, string $name): void
    {
        $file = $this->pictures->path($kind, $name);
        if (!is_file($file)) {
            throw new Failure(404, 'This picture does not exist, or has been deleted.');
        }
        $this->session->release();
        $tag = '"' . $kind . '-' . strtok($name, '.') . '"';
        header("ETag: $tag");
        header('Cache-Control: public, max-age=31536000, immutable');
        if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === $tag) {
            http_response_code(304);
            return;
        }
        header('Content-Type: ' . ['jpg' => 'image/jpeg', 'png' => 'image/png', 'webp' => 'image/webp'][pathinfo($name, PATHINFO_EXTENSION)]);
        header('Content-Length: ' . filesize($file));
        readfile($file);
    }

    public function login(): void
    {
        $problem = null;
        if ($_SERVER['REQUEST_METHOD'] === 'POST') {
            $this->session->checkToken();
            $name = self::text($_POST, 'name', 60);
            if ($this->book->isKeeper($name, self::text($_POST, 'password', 200))) {
                $this->session->logIn($name);
                $this->session->say("Welcome, $name.");
                $this->go('/');
                return;
            }
            $problem = 'There is no keeper with this name and password.';
        }
        $this->view->page('login', 'Log in', compact('problem'), $problem === null ? 200 : 401);
    }

    public function logout(): void
    {
        $this->session->checkToken();
        $this->session->logOut();
        $this->session->say('You are logged out.');
        $this->go('/');
    }

    public function live(): void
    {
        $this->view->page('live', 'Live');
    }

    /** Sends ten server-sent events, one every half second, and flushes each of them at once. */
    public function stream(): void
    {
        $this->session->release();
        header('Content-Type: text/event-stream');
        header('Cache-Control: no-store');
        header('X-Accel-Buffering: no');
        while (ob_get_level() > 0) {
            ob_end_flush();
        }
        $begun = hrtime(true);
        for ($step = 1; $step <= 10 && !connection_aborted(); $step++) {
            $ms = intdiv(hrtime(true) - $begun, 1_000_000);
            echo "id: $step\ndata: " . json_encode(['step' => $step, 'of' => 10, 'ms' => $ms, 'pid' => getmypid()]) . "\n\n";
            flush();
            if ($step < 10) {
                usleep(500_000);
            }
        }
    }

    public function about(): void
    {
        $opcache = function_exists('opcache_get_status') ? opcache_get_status(false) : false;
        $this->view->page('about', 'About', ['facts' => [
            'Server' => $_SERVER['SERVER_SOFTWARE'] ?? '?',
            'PHP' => PHP_VERSION . (PHP_ZTS ? ' (thread-safe)' : ' (not thread-safe)'),
            'SAPI' => php_sapi_name(),
            'Process' => (string) getmypid(),
            'Opcode cache' => ($opcache['opcache_enabled'] ?? false) ? "on, {$opcache['opcache_statistics']['num_cached_scripts']} scripts" : 'off',
            'Memory of this page' => number_format(memory_get_peak_usage() / 1024) . ' KB',
            'Upload limit' => ini_get('upload_max_filesize'),
        ]]);
    }

    /** The variables that matter most when a script does not behave as expected. Cookies and credentials are not shown. */
    private const VARIABLES = [
        'REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING', 'SERVER_PROTOCOL', 'HTTP_HOST', 'HTTPS', 'REMOTE_ADDR',
        'SERVER_NAME', 'SERVER_PORT', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'DOCUMENT_ROOT', 'SERVER_SOFTWARE',
        'HTTP_ACCEPT', 'HTTP_ACCEPT_ENCODING', 'HTTP_ACCEPT_LANGUAGE', 'HTTP_USER_AGENT',
    ];

    /** Shows what the server passes to PHP for a request; public/request.js adds the response headers. */
    public function request(): void
    {
        $variables = array_intersect_key($_SERVER, array_flip(self::VARIABLES));
        $site = (($_SERVER['HTTPS'] ?? '') === 'on' ? 'https' : 'http') . '://' . ($_SERVER['HTTP_HOST'] ?? 'localhost');
        // `howdah explain` reads the configuration that `make demo` writes.
        $config = dirname(__DIR__) . '/howdah.toml';
        $option = is_file($config) ? " --config $config" : '';
        header('Cache-Control: no-store');
        $this->view->page('request', 'What happened to this request', compact('variables', 'site', 'option'));
    }

    public function api(): void
    {
        $list = $this->book->list((int) self::text($_GET, 'page', 9), self::text($_GET, 'q', 100));
        header('Content-Type: application/json');
        echo json_encode($list, JSON_UNESCAPED_UNICODE | JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR), "\n";
    }

    /** @return array{array<string, string>, array<string, string>} the posted text and the problems, both by field */
    private function draft(): array
    {
        $draft = $problems = [];
        foreach (self::LIMITS as $field => $limit) {
            $draft[$field] = self::text($_POST, $field, $limit + 1);
            if (mb_strlen($draft[$field]) > $limit) {
                $problems[$field] = "Please write at most $limit characters.";
            }
        }
        if ($draft['author'] === '') {
            $problems['author'] = 'Please enter your name.';
        }
        if ($draft['message'] === '') {
            $problems['message'] = 'Leave a few words.';
        }
        return [$draft, $problems];
    }

    /** Returns the trimmed text of a field, cut to $limit characters, or '' if the field is not text. */
    private static function text(array $from, string $field, int $limit): string
    {
        $value = $from[$field] ?? '';
        return is_string($value) ? mb_substr(trim(mb_scrub($value, 'UTF-8')), 0, $limit, 'UTF-8') : '';
    }

    private function go(string $to): void
    {
        header("Location: $to", true, 303);
    }
}
