<?php
declare(strict_types=1);

namespace Guestbook;

/** The entries and the keepers of the guestbook. All SQL statements are in this class. */
final class Book
{
    public const PER_PAGE = 10;

    public function __construct(private readonly Store $store)
    {
    }

    /** @return array{entries: list<array>, page: int, pages: int, total: int} newest first; $page is limited to the existing pages */
    public function list(int $page, string $search = ''): array
    {
        $like = '%' . strtr($search, ['%' => '\\%', '_' => '\\_', '\\' => '\\\\']) . '%';
        $where = "WHERE author || ' ' || place || ' ' || message LIKE ? ESCAPE '\\'";
        $total = (int) $this->run("SELECT count(*) FROM entry $where", [$like])->fetchColumn();
        $pages = max(1, (int) ceil($total / self::PER_PAGE));
        $page = max(1, min($page, $pages));
        $entries = $this->run(
            "SELECT * FROM entry $where ORDER BY written DESC, id DESC LIMIT ? OFFSET ?",
            [$like, self::PER_PAGE, ($page - 1) * self::PER_PAGE],
        )->fetchAll();
        return compact('entries', 'page', 'pages', 'total');
    }

    public function entry(int $id): array
    {
        return $this->run('SELECT * FROM entry WHERE id = ?', [$id])->fetch()
            ?: throw new Failure(404, "Entry $id does not exist, or has been deleted.");
    }

    public function add(array $entry, ?string $picture, ?int $written = null): int
    {
        $this->run(
            'INSERT INTO entry (author, place, message, picture, written) VALUES (?, ?, ?, ?, ?)',
            [$entry['author'], $entry['place'], $entry['message'], $picture, $written ?? time()],
        );
        return (int) $this->store->db->lastInsertId();
    }

    public function change(int $id, array $entry): void
    {
        $this->run(
            'UPDATE entry SET author = ?, place = ?, message = ?, edited = ? WHERE id = ?',
            [$entry['author'], $entry['place'], $entry['message'], time(), $id],
        );
    }

    public function delete(int $id): void
    {
        $this->run('DELETE FROM entry WHERE id = ?', [$id]);
    }

    /** Returns whether any entry still shows this picture. */
    public function shows(string $picture): bool
    {
        return (bool) $this->run('SELECT 1 FROM entry WHERE picture = ?', [$picture])->fetchColumn();
    }

    public function setKeeper(string $name, string $password): void
    {
        $this->run(
            'INSERT INTO keeper (name, password) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET password = excluded.password',
            [$name, password_hash($password, PASSWORD_DEFAULT)],
        );
    }

    public function isKeeper(string $name, string $password): bool
    {
        $hash = $this->run('SELECT password FROM keeper WHERE name = ?', [$name])->fetchColumn();
        // An unknown name is verified against a dummy hash, so that it takes as long as a known name.
        return password_verify($password, is_string($hash) ? $hash : '$2y$10$' . str_repeat('.', 53)) && is_string($hash);
    }

    private function run(string $sql, array $values): \PDOStatement
    {
        $statement = $this->store->db->prepare($sql);
        $statement->execute($values);
        return $statement;
    }
}
