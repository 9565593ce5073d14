<?php
declare(strict_types=1);

namespace Guestbook;

/**
 * The session of a visitor: who has logged in, and the token that proves that a form came from one of our pages.
 * A visitor without a cookie gets a session only when a page needs a session.
 */
final class Session
{
    public function __construct(private readonly string $directory)
    {
        if (isset($_COOKIE['guestbook'])) {
            $this->start();
        }
    }

    public function keeper(): ?string
    {
        return $_SESSION['keeper'] ?? null;
    }

    public function requireKeeper(): string
    {
        return $this->keeper() ?? throw new Failure(403, 'Only the keeper may do that. Log in first.');
    }

    public function logIn(string $name): void
    {
        $this->start();
        session_regenerate_id(true);
        $_SESSION['keeper'] = $name;
    }

    public function logOut(): void
    {
        $this->start();
        $_SESSION = [];
        session_regenerate_id(true);
    }

    public function token(): string
    {
        $this->start();
        return $_SESSION['token'] ??= bin2hex(random_bytes(16));
    }

    /** @throws Failure if the posted form does not contain this session's token */
    public function checkToken(): void
    {
        $sent = $_POST['token'] ?? '';
        if (!is_string($sent) || !hash_equals($this->token(), $sent)) {
            throw new Failure(403, 'This form has expired, or it does not come from this site. Go back, reload the page and send the form again.');
        }
    }

    public function say(string $notice): void
    {
        $this->start();
        $_SESSION['notice'] = $notice;
    }

    /** Returns the notice that the previous page left, and removes it. */
    public function notice(): ?string
    {
        $notice = $_SESSION['notice'] ?? null;
        unset($_SESSION['notice']);
        return $notice;
    }

    /** Lets the next request of this visitor run while this one streams. */
    public function release(): void
    {
        if (session_status() === PHP_SESSION_ACTIVE) {
            session_write_close();
        }
    }

    private function start(): void
    {
        if (session_status() === PHP_SESSION_ACTIVE) {
            return;
        }
        session_start([
            'name' => 'guestbook',
            'save_path' => $this->directory,
            'use_strict_mode' => true,
            'cookie_httponly' => true,
            'cookie_samesite' => 'Lax',
            'cookie_secure' => ($_SERVER['HTTPS'] ?? '') === 'on',
            'gc_probability' => 1,
            'gc_divisor' => 100,
        ]);
    }
}
