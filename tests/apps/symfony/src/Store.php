<?php
declare(strict_types=1);

namespace Notes;

use PDO;
use Symfony\Component\HttpFoundation\File\UploadedFile;

/** Notes in SQLite, pictures beside them. */
final class Store
{
    private readonly PDO $db;

    public function __construct(private readonly string $directory)
    {
        @mkdir("$directory/pictures", 0777, true);
        $this->db = new PDO("sqlite:$directory/notes.sqlite", options: [PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC, PDO::ATTR_TIMEOUT => 5]);
        $this->db->exec('CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL, picture TEXT)');
        $this->db->exec('CREATE TABLE IF NOT EXISTS seen (path TEXT PRIMARY KEY, times INTEGER NOT NULL)');
    }

    public function find(string $query): array
    {
        $statement = $this->db->prepare("SELECT * FROM note WHERE title || ' ' || text LIKE ? ORDER BY id DESC LIMIT 50");
        $statement->execute(["%$query%"]);
        return $statement->fetchAll();
    }

    public function note(int $id): ?array
    {
        $statement = $this->db->prepare('SELECT * FROM note WHERE id = ?');
        $statement->execute([$id]);
        return $statement->fetch() ?: null;
    }

    public function add(string $title, string $text, ?string $picture = null): int
    {
        $this->db->prepare('INSERT INTO note (title, text, picture) VALUES (?, ?, ?)')->execute([$title, $text, $picture]);
        return (int) $this->db->lastInsertId();
    }

    public function change(int $id, string $title, string $text): void
    {
        $this->db->prepare('UPDATE note SET title = ?, text = ? WHERE id = ?')->execute([$title, $text, $id]);
    }

    public function remove(int $id): void
    {
        $this->db->prepare('DELETE FROM note WHERE id = ?')->execute([$id]);
    }

    public function keep(UploadedFile $file): string
    {
        $name = bin2hex(random_bytes(8)) . '.jpg';
        $file->move("{$this->directory}/pictures/full", $name);
        $image = imagecreatefromjpeg($this->picture('full', $name));
        @mkdir("{$this->directory}/pictures/small", 0777, true);
        imagejpeg(imagescale($image, 120), $this->picture('small', $name));
        return $name;
    }

    public function picture(string $size, string $name): string
    {
        return "{$this->directory}/pictures/$size/$name";
    }

    public function countPath(string $path): void
    {
        $this->db->prepare('INSERT INTO seen VALUES (?, 1) ON CONFLICT (path) DO UPDATE SET times = times + 1')->execute([$path]);
    }

    public function seen(): array
    {
        return $this->db->query('SELECT path, times FROM seen')->fetchAll(PDO::FETCH_KEY_PAIR);
    }
}
