<?php
declare(strict_types=1);

namespace Howdah;

use DateInterval;
use DateTimeImmutable;
use DateTimeZone;
use Psr\SimpleCache\CacheInterface;
use Psr\SimpleCache\InvalidArgumentException;

/** An argument that PSR-16 does not allow. */
final class InvalidKey extends \InvalidArgumentException implements InvalidArgumentException
{
}

/**
 * A PSR-16 cache (psr/simple-cache 1, 2 and 3) that stores its values in Howdah's shared cache. It needs functions that
 * exist in the modes embed and worker and in `howdah php`.
 *
 * Only return values have types, which is compatible with all three versions. Applications that share a pool must use
 * different namespaces. clear() deletes only the values of its own namespace.
 */
final class SharedCache implements CacheInterface
{
    private const KEY_BYTES = 1024;
    private const TAG_BYTES = 255;

    private readonly string $prefix;

    /** The marker for a missing value. null and false cannot be used, because they are valid values. */
    private readonly object $none;

    /** $defaultTtl is in seconds; 0 means no limit. */
    public function __construct(string $namespace = '', private readonly int $defaultTtl = 0)
    {
        $this->prefix = "psr16:$namespace:";
        $this->none = new \stdClass();
        if (strlen($this->prefix) > self::TAG_BYTES) {
            throw new InvalidKey('A namespace must have at most ' . self::TAG_BYTES - strlen('psr16::') . ' bytes');
        }
        if ($defaultTtl < 0) {
            throw new InvalidKey("The default TTL must not be negative, but it is $defaultTtl; use 0 for no limit");
        }
    }

    /** @param string $key */
    public function get($key, $default = null): mixed
    {
        return howdah_cache_get($this->key($key), $default);
    }

    /**
     * If the value cannot be stored, any older value under the key is removed.
     *
     * @param string $key
     * @param null|int|DateInterval $ttl
     */
    public function set($key, $value, $ttl = null): bool
    {
        return $this->store($this->key($key), $value, $this->seconds($ttl));
    }

    /** @param string $key */
    public function delete($key): bool
    {
        howdah_cache_delete($this->key($key));
        return true;
    }

    public function clear(): bool
    {
        return howdah_cache_delete_tag($this->prefix);
    }

    /** @param iterable<string> $keys */
    public function getMultiple($keys, $default = null): iterable
    {
        $values = [];
        foreach ($this->keys($keys) as $key => $name) {
            $values[$key] = howdah_cache_get($name, $default);
        }
        return $values;
    }

    /**
     * @param iterable<string, mixed> $values
     * @param null|int|DateInterval $ttl
     */
    public function setMultiple($values, $ttl = null): bool
    {
        $seconds = $this->seconds($ttl);
        // All keys are checked before the first value is stored.
        $checked = [];
        foreach ($this->iterable($values) as $key => $value) {
            // In arrays, PHP converts keys such as "7" to integers.
            $checked[] = [$this->key(is_int($key) ? (string) $key : $key), $value];
        }
        $stored = true;
        foreach ($checked as [$name, $value]) {
            $stored = $this->store($name, $value, $seconds) && $stored;
        }
        return $stored;
    }

    /** @param iterable<string> $keys */
    public function deleteMultiple($keys): bool
    {
        foreach ($this->keys($keys) as $name) {
            howdah_cache_delete($name);
        }
        return true;
    }

    /** @param string $key */
    public function has($key): bool
    {
        return howdah_cache_get($this->key($key), $this->none) !== $this->none;
    }

    private function store(string $name, mixed $value, int $seconds): bool
    {
        if ($seconds < 0) {
            howdah_cache_delete($name);
            return true;
        }
        if (howdah_cache_set($name, $value, $seconds, [$this->prefix])) {
            return true;
        }
        howdah_cache_delete($name);
        return false;
    }

    /** The name of a value in the shared cache. */
    private function key(mixed $key): string
    {
        if (!is_string($key)) {
            throw new InvalidKey('A key must be a string, not ' . get_debug_type($key));
        }
        if ($key === '') {
            throw new InvalidKey('A key must not be empty');
        }
        if (strpbrk($key, '{}()/\\@:') !== false) {
            throw new InvalidKey("The key $key contains one of the reserved characters {}()/\\@:");
        }
        if (strlen($this->prefix . $key) > self::KEY_BYTES) {
            throw new InvalidKey('A key in this namespace must have at most ' . self::KEY_BYTES - strlen($this->prefix) . ' bytes');
        }
        return $this->prefix . $key;
    }

    /** @return array<string> the names of the values in the shared cache, indexed by their keys */
    private function keys(mixed $keys): array
    {
        $names = [];
        foreach ($this->iterable($keys) as $key) {
            $name = $this->key($key);
            $names[$key] = $name;
        }
        return $names;
    }

    private function iterable(mixed $values): iterable
    {
        return is_iterable($values) ? $values : throw new InvalidKey('Expected an array or a Traversable, not ' . get_debug_type($values));
    }

    /** Returns the TTL in seconds: 0 means no limit, and -1 means that the value has already expired. */
    private function seconds(mixed $ttl): int
    {
        if ($ttl === null) {
            return $this->defaultTtl;
        }
        if ($ttl instanceof DateInterval) {
            $now = new DateTimeImmutable('now', new DateTimeZone('UTC'));
            $ttl = $now->add($ttl)->getTimestamp() - $now->getTimestamp();
        }
        if (!is_int($ttl)) {
            throw new InvalidKey('A TTL must be null, an integer or a DateInterval, not ' . get_debug_type($ttl));
        }
        return $ttl > 0 ? $ttl : -1;
    }
}
