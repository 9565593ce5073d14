<?php
declare(strict_types=1);

namespace Guestbook;

use PDO;

/**
 * The data directory, with an SQLite file, the pictures and the sessions. It is outside the
 * document root, so none of its files has a URL.
 */
final class Store
{
    private const SCHEMA = 2;

    private function __construct(public readonly string $directory, public readonly PDO $db)
    {
    }

    /** Opens the directory. Creates the directory and the tables if they do not exist. */
    public static function open(string $directory): self
    {
        foreach (['', '/pictures', '/thumbs', '/sessions'] as $sub) {
            if (!is_dir($directory . $sub) && !@mkdir($directory . $sub, 0700, true) && !is_dir($directory . $sub)) {
                throw new \RuntimeException("cannot create $directory$sub: is its parent writable for uid " . posix_geteuid() . '?');
            }
        }
        $db = new PDO("sqlite:$directory/guestbook.sqlite", options: [
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
            PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
            PDO::ATTR_TIMEOUT => 5,
        ]);
        $store = new self($directory, $db);
        if ((int) $db->query('PRAGMA user_version')->fetchColumn() !== self::SCHEMA) {
            $store->createTables();
        }
        return $store;
    }

    private function createTables(): void
    {
        $this->db->exec('PRAGMA journal_mode = WAL');
        $this->db->exec('BEGIN IMMEDIATE');
        $this->db->exec('CREATE TABLE IF NOT EXISTS entry (
            id INTEGER PRIMARY KEY, author TEXT NOT NULL, place TEXT NOT NULL DEFAULT "",
            message TEXT NOT NULL, picture TEXT, written INTEGER NOT NULL, edited INTEGER)');
        $this->db->exec('CREATE INDEX IF NOT EXISTS entry_written ON entry (written DESC, id DESC)');
        $this->db->exec('CREATE TABLE IF NOT EXISTS keeper (name TEXT PRIMARY KEY, password TEXT NOT NULL)');
        $this->db->exec('PRAGMA user_version = ' . self::SCHEMA);
        $this->db->exec('COMMIT');
    }
}
