<?php
declare(strict_types=1);

namespace Guestbook;

/** Renders templates/NAME.php inside templates/layout.php. The class makes no decisions about content. */
final class View
{
    /** @var array<string, mixed> the values that every template receives */
    private array $shared = ['session' => null, 'path' => '/'];

    public function __construct(private readonly string $directory)
    {
    }

    public function share(array $values): void
    {
        $this->shared = $values + $this->shared;
    }

    public function page(string $template, string $title, array $values = [], int $status = 200): void
    {
        http_response_code($status);
        header('Content-Type: text/html; charset=utf-8');
        header("Content-Security-Policy: default-src 'self'");
        header('X-Content-Type-Options: nosniff');
        $body = $this->render($template, $values);
        $page = $this->render('layout', ['title' => $title, 'body' => $body]);
        // A visitor with a session gets a page of their own; all other visitors get the same page.
        if (session_status() === PHP_SESSION_ACTIVE) {
            header('Cache-Control: no-store');
        }
        echo $page;
    }

    public function fail(int $status, string $message): void
    {
        while (ob_get_level() > 0) {
            ob_end_clean();
        }
        if (headers_sent()) {
            return; // A stream has begun, and an error page cannot follow it.
        }
        $this->page('error', "$status", ['status' => $status, 'message' => $message], $status);
    }

    private function render(string $template, array $values): string
    {
        return (static function (string $__file, array $__values): string {
            extract($__values);
            ob_start();
            try {
                require $__file;
                return (string) ob_get_contents();
            } finally {
                ob_end_clean();
            }
        })("{$this->directory}/$template.php", $values + $this->shared);
    }

    public static function escape(?string $text): string
    {
        return htmlspecialchars((string) $text, ENT_QUOTES | ENT_SUBSTITUTE, 'UTF-8');
    }
}
