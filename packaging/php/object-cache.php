<?php
/**
 * Plugin Name: Howdah Shared Cache
 * Description: Stores WordPress' object cache in the shared memory of Howdah's pool.
 *
 * This drop-in stores WordPress' object cache in Howdah's shared cache. It is for WordPress 6.1 and later. Copy or link
 * this file to wp-content/object-cache.php. Its functions behave like those of wp-includes/cache.php and
 * class-wp-object-cache.php. The salted functions come from WordPress' own cache-compat.php.
 *
 * Without a shared cache, this file defines nothing. WordPress then loads its own cache, and stores transients in the
 * database. On the command line (`howdah php`), values last until the script ends, and when the script sets or deletes
 * a value, the server deletes its own value.
 *
 * A worker script that boots WordPress only once must call wp_cache_flush_runtime() after each request.
 */

// Declared inside the condition, because PHP declares a file's other functions before its first line runs.
if (function_exists('howdah_cache_info') && (PHP_SAPI === 'cli' || howdah_cache_info() !== null)) :

function wp_cache_init()
{
    $GLOBALS['wp_object_cache'] = new WP_Object_Cache();
}

function wp_cache_add($key, $data, $group = '', $expire = 0)
{
    global $wp_object_cache;
    return $wp_object_cache->add($key, $data, $group, (int) $expire);
}

function wp_cache_add_multiple(array $data, $group = '', $expire = 0)
{
    global $wp_object_cache;
    return $wp_object_cache->add_multiple($data, $group, (int) $expire);
}

function wp_cache_replace($key, $data, $group = '', $expire = 0)
{
    global $wp_object_cache;
    return $wp_object_cache->replace($key, $data, $group, (int) $expire);
}

function wp_cache_set($key, $data, $group = '', $expire = 0)
{
    global $wp_object_cache;
    return $wp_object_cache->set($key, $data, $group, (int) $expire);
}

function wp_cache_set_multiple(array $data, $group = '', $expire = 0)
{
    global $wp_object_cache;
    return $wp_object_cache->set_multiple($data, $group, (int) $expire);
}

function wp_cache_get($key, $group = '', $force = false, &$found = null)
{
    global $wp_object_cache;
    return $wp_object_cache->get($key, $group, $force, $found);
}

function wp_cache_get_multiple($keys, $group = '', $force = false)
{
    global $wp_object_cache;
    return $wp_object_cache->get_multiple($keys, $group, $force);
}

function wp_cache_delete($key, $group = '')
{
    global $wp_object_cache;
    return $wp_object_cache->delete($key, $group);
}

function wp_cache_delete_multiple(array $keys, $group = '')
{
    global $wp_object_cache;
    return $wp_object_cache->delete_multiple($keys, $group);
}

function wp_cache_incr($key, $offset = 1, $group = '')
{
    global $wp_object_cache;
    return $wp_object_cache->incr($key, $offset, $group);
}

function wp_cache_decr($key, $offset = 1, $group = '')
{
    global $wp_object_cache;
    return $wp_object_cache->decr($key, $offset, $group);
}

function wp_cache_flush()
{
    global $wp_object_cache;
    return $wp_object_cache->flush();
}

function wp_cache_flush_runtime()
{
    global $wp_object_cache;
    return $wp_object_cache->flush_runtime();
}

function wp_cache_flush_group($group)
{
    global $wp_object_cache;
    return $wp_object_cache->flush_group($group);
}

function wp_cache_supports($feature)
{
    return in_array($feature, ['add_multiple', 'set_multiple', 'get_multiple', 'delete_multiple', 'flush_runtime', 'flush_group'], true);
}

function wp_cache_close()
{
    return true;
}

function wp_cache_add_global_groups($groups)
{
    global $wp_object_cache;
    $wp_object_cache->add_global_groups($groups);
}

function wp_cache_add_non_persistent_groups($groups)
{
    global $wp_object_cache;
    $wp_object_cache->add_non_persistent_groups($groups);
}

function wp_cache_switch_to_blog($blog_id)
{
    global $wp_object_cache;
    $wp_object_cache->switch_to_blog($blog_id);
}

function wp_cache_reset()
{
    _deprecated_function(__FUNCTION__, '3.5.0', 'wp_cache_switch_to_blog()');
    global $wp_object_cache;
    $wp_object_cache->reset();
}

/** Properties are public where WordPress' own class has them public or readable by its __get(). */
#[AllowDynamicProperties]
class WP_Object_Cache
{
    public $cache_hits = 0;
    public $cache_misses = 0;

    /** The values of this request, indexed by the group, and then by the blog prefix with the key. */
    public $cache = [];

    /** In this array and in $non_persistent_groups, the keys are the names of groups. */
    public $global_groups = [];
    public $non_persistent_groups = [];
    public $blog_prefix;
    public $multisite;

    /** The tags of a group's values in the shared cache, indexed by the group. */
    private $tags = [];

    /** The tag of this installation. The keys of its values begin with this tag. */
    private $site;

    /** False on the command line, which has no shared cache and can only delete the server's values. */
    private $shared;

    /** The marker for a missing value. null and false cannot be used, because they are valid values. */
    private $none;

    public function __construct()
    {
        $this->multisite = is_multisite();
        $this->blog_prefix = $this->multisite ? get_current_blog_id() . ':' : '';
        $this->shared = PHP_SAPI !== 'cli';
        $this->none = new stdClass();

        // Several installations may share a pool. FQDB is the database file of WordPress on SQLite, where DB_NAME is not unique.
        $site = [$GLOBALS['table_prefix'] ?? ''];
        foreach (['WP_CACHE_KEY_SALT', 'DB_HOST', 'DB_NAME', 'FQDB'] as $constant) {
            $site[] = defined($constant) ? constant($constant) : '';
        }
        $this->site = 'wp:' . substr(hash('sha256', implode("\0", $site)), 0, 16);
    }

    public function get($key, $group = 'default', $force = false, &$found = null)
    {
        if (empty($group)) {
            $group = 'default';
        }
        // No value is stored under an invalid key, so for a hit it is enough to check the type of the key.
        if (is_string($key) || is_int($key)) {
            $id = $this->multisite && !isset($this->global_groups[$group]) ? $this->blog_prefix . $key : $key;
            $value = $this->cache[$group][$id] ?? null;
            if ($value !== null && !$force) {
                $found = true;
                ++$this->cache_hits;
                return is_object($value) ? clone $value : $value;
            }
        }
        if (!$this->is_valid_key($key)) {
            return false;
        }
        $value = $this->find($id, $group, $force);
        $found = $value !== $this->none;
        if (!$found) {
            ++$this->cache_misses;
            return false;
        }
        ++$this->cache_hits;
        return is_object($value) ? clone $value : $value;
    }

    public function get_multiple($keys, $group = 'default', $force = false)
    {
        $values = [];
        foreach ($keys as $key) {
            $values[$key] = $this->get($key, $group, $force);
        }
        return $values;
    }

    public function set($key, $data, $group = 'default', $expire = 0)
    {
        if (!$this->is_valid_key($key)) {
            return false;
        }
        $group = $group ?: 'default';
        if ($expire < 0) {
            $this->delete($key, $group);
            return true;
        }
        $id = $this->id($key, $group);
        if (is_object($data)) {
            $data = clone $data;
        }
        $this->cache[$group][$id] = $data;
        return $this->store($id, $data, $group, (int) $expire);
    }

    public function set_multiple(array $data, $group = '', $expire = 0)
    {
        $values = [];
        foreach ($data as $key => $value) {
            $values[$key] = $this->set($key, $value, $group, $expire);
        }
        return $values;
    }

    /** On the command line, an added value exists only in the script, and the server's values do not change. */
    public function add($key, $data, $group = 'default', $expire = 0)
    {
        if (wp_suspend_cache_addition() || !$this->is_valid_key($key)) {
            return false;
        }
        $group = $group ?: 'default';
        $id = $this->id($key, $group);
        if ($expire < 0) {
            return $this->find($id, $group, true) === $this->none;
        }
        if ($this->is_shared($group)) {
            // Asks the shared cache first, because another process may have deleted a value that this request still has (a lock).
            try {
                $added = howdah_cache_add($this->key($id, $group), $data, (int) $expire, $this->tags($group));
            } catch (Throwable) { // of serialize(), for a closure and the like
                $added = false;
            }
            // If the shared cache has no value either, it refused this one, which is then valid for this request only.
            if (!$added && ($this->is_kept($id, $group) || $this->find($id, $group) !== $this->none)) {
                return false;
            }
        } elseif ($this->is_kept($id, $group)) {
            return false;
        } else {
            $added = true;
        }
        $this->cache[$group][$id] = is_object($data) ? clone $data : $data;
        return $added;
    }

    public function add_multiple(array $data, $group = '', $expire = 0)
    {
        $values = [];
        foreach ($data as $key => $value) {
            $values[$key] = $this->add($key, $value, $group, $expire);
        }
        return $values;
    }

    public function replace($key, $data, $group = 'default', $expire = 0)
    {
        if (!$this->is_valid_key($key)) {
            return false;
        }
        $group = $group ?: 'default';
        if ($this->find($this->id($key, $group), $group, true) === $this->none) {
            return false;
        }
        return $this->set($key, $data, $group, $expire);
    }

    public function delete($key, $group = 'default', $deprecated = false)
    {
        if (!$this->is_valid_key($key)) {
            return false;
        }
        $group = $group ?: 'default';
        $id = $this->id($key, $group);
        $kept = $this->is_kept($id, $group);
        unset($this->cache[$group][$id]);
        if (isset($this->non_persistent_groups[$group])) {
            return $kept;
        }
        return howdah_cache_delete($this->key($id, $group)) || $kept;
    }

    public function delete_multiple(array $keys, $group = '')
    {
        $values = [];
        foreach ($keys as $key) {
            $values[$key] = $this->delete($key, $group);
        }
        return $values;
    }

    public function incr($key, $offset = 1, $group = 'default')
    {
        return $this->is_valid_key($key) ? $this->change($key, (int) $offset, $group ?: 'default') : false;
    }

    public function decr($key, $offset = 1, $group = 'default')
    {
        return $this->is_valid_key($key) ? $this->change($key, -(int) $offset, $group ?: 'default') : false;
    }

    public function flush()
    {
        $this->cache = [];
        return howdah_cache_delete_tag($this->site) || !$this->shared;
    }

    public function flush_runtime()
    {
        $this->cache = [];
        return true;
    }

    public function flush_group($group)
    {
        unset($this->cache[$group]);
        if (isset($this->non_persistent_groups[$group])) {
            return true;
        }
        return howdah_cache_delete_tag($this->tags($group)[1]) || !$this->shared;
    }

    public function add_global_groups($groups)
    {
        $this->global_groups += array_fill_keys((array) $groups, true);
    }

    public function add_non_persistent_groups($groups)
    {
        $this->non_persistent_groups += array_fill_keys((array) $groups, true);
    }

    public function switch_to_blog($blog_id)
    {
        $this->blog_prefix = $this->multisite ? (int) $blog_id . ':' : '';
    }

    public function reset()
    {
        _deprecated_function(__FUNCTION__, '3.5.0', 'WP_Object_Cache::switch_to_blog()');
        $this->cache = array_intersect_key($this->cache, $this->global_groups);
    }

    public function stats()
    {
        echo "<p><strong>Cache Hits:</strong> {$this->cache_hits}<br />";
        echo "<strong>Cache Misses:</strong> {$this->cache_misses}<br /></p><ul>";
        foreach ($this->cache as $group => $values) {
            echo '<li><strong>Group:</strong> ' . esc_html($group) . ' - ' . count($values) . ' values</li>';
        }
        echo '</ul>';
    }

    protected function is_valid_key($key)
    {
        if (is_int($key) || is_string($key) && trim($key) !== '') {
            return true;
        }
        if (!function_exists('__')) {
            wp_load_translations_early();
        }
        _doing_it_wrong(
            sprintf('%s::%s', __CLASS__, debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS, 2)[1]['function']),
            is_string($key)
                ? __('Cache key must not be an empty string.')
                /* translators: %s: The type of the given cache key. */
                : sprintf(__('Cache key must be an integer or a non-empty string, %s given.'), gettype($key)),
            '6.1.0'
        );
        return false;
    }

    private function id($key, $group)
    {
        return $this->multisite && !isset($this->global_groups[$group]) ? $this->blog_prefix . $key : $key;
    }

    private function is_kept($id, $group)
    {
        return isset($this->cache[$group]) && array_key_exists($id, $this->cache[$group]);
    }

    /**
     * Returns whether the values of the group are in the shared cache. While WordPress is being installed or upgraded, it
     * neither reads nor writes there, because the values may come from an earlier state of the database. It still deletes.
     */
    private function is_shared($group)
    {
        return $this->shared && !isset($this->non_persistent_groups[$group]) && !wp_installing();
    }

    /** Returns the value of this request or, if there is none or with $force, the shared value. */
    private function find($id, $group, $force = false)
    {
        $kept = $this->is_kept($id, $group);
        if ($kept && !$force || !$this->is_shared($group)) {
            return $kept ? $this->cache[$group][$id] : $this->none;
        }
        unset($this->cache[$group][$id]);
        try {
            $value = howdah_cache_get($this->key($id, $group), $this->none);
        } catch (Throwable) { // of unserialize(), when a class has changed since
            return $this->none;
        }
        if ($value !== $this->none) {
            $this->cache[$group][$id] = $value;
        }
        return $value;
    }

    /** A value that cannot be shared is valid for this request only, and the older shared value is deleted. */
    private function store($id, $value, $group, $expire)
    {
        if (isset($this->non_persistent_groups[$group])) {
            return true;
        }
        $key = $this->key($id, $group);
        $shared = $this->is_shared($group);
        try {
            if ($shared && howdah_cache_set($key, $value, $expire, $this->tags($group))) {
                return true;
            }
        } catch (Throwable) { // of serialize(), for a closure and the like
        }
        howdah_cache_delete($key);
        return !$shared;
    }

    private function change($key, $offset, $group)
    {
        $id = $this->id($key, $group);
        $shared = $this->is_shared($group);
        if ($shared) {
            $key = $this->key($id, $group);
            $value = howdah_cache_increment($key, $offset);
            if ($value !== false) {
                if ($value < 0) {
                    // Each process reverses only its own change, so that two processes at the same time do not end above zero.
                    howdah_cache_increment($key, min(-$value, max(-$offset, 0)));
                    $value = 0;
                }
                return $this->cache[$group][$id] = $value;
            }
        }
        $value = $this->find($id, $group, $shared);
        if ($value === $this->none) {
            return false;
        }
        $value = (is_numeric($value) ? $value : 0) + $offset;
        if ($value < 0) {
            $value = 0;
        }
        $this->cache[$group][$id] = $value;
        $this->store($id, $value, $group, 0);
        return $value;
    }

    /** Returns the name of a value in the shared cache, where names have at most 1024 bytes. */
    private function key($id, $group)
    {
        $key = "{$this->site}:$group\0$id";
        return strlen($key) < 1024 ? $key : substr($key, 0, 960) . hash('sha256', $key);
    }

    /** Returns the installation's tag and the group's tag. Tags have at most 255 bytes. */
    private function tags($group)
    {
        return $this->tags[$group] ??= [
            $this->site,
            $this->site . ':' . (strlen($group) < 200 ? $group : hash('sha256', $group)),
        ];
    }
}

endif;
