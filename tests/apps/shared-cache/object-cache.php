<?php
// The object cache of a real WordPress, whose root is in WORDPRESS. With Howdah's drop-in and a shared
// cache, a second WP_Object_Cache stands for another process. Without either these are checks of
// WordPress' own cache, which must pass as well.
declare(strict_types=1);

require __DIR__ . '/checks.php';
require ($_SERVER['WORDPRESS'] ?? getenv('WORDPRESS')) . '/wp-load.php';

header('Content-Type: text/plain');
add_filter('doing_it_wrong_trigger_error', '__return_false');
add_filter('deprecated_function_trigger_error', '__return_false');
$region = function_exists('howdah_cache_info') ? howdah_cache_info() : null;
$group = 'howdah-test';
$miss = static function (string $key, string $group = 'howdah-test', bool $force = false): bool {
    return wp_cache_get($key, $group, $force, $found) === false && $found === false;
};

check('it starts empty', true, wp_cache_flush());
check('the drop-in is in use with a shared cache', $region !== null || PHP_SAPI === 'cli' && function_exists('howdah_cache_info'), (bool) wp_using_ext_object_cache());
check('its properties count', [true, true], [is_int($wp_object_cache->cache_hits), is_int($wp_object_cache->cache_misses)]);
foreach (['add_multiple', 'set_multiple', 'get_multiple', 'delete_multiple', 'flush_runtime', 'flush_group'] as $feature) {
    check("it supports $feature", true, wp_cache_supports($feature));
}
check('it supports nothing unknown', false, wp_cache_supports('time_travel'));

$hits = $wp_object_cache->cache_hits;
$misses = $wp_object_cache->cache_misses;
foreach ([null, false, true, 0, 17, 1.5, '', "bytes \0\xff", [], ['a' => [1, null]]] as $number => $value) {
    check("value $number is absent", true, $miss("value-$number"));
    check("value $number is set", true, wp_cache_set("value-$number", $value, $group));
    check("value $number is returned", $value, wp_cache_get("value-$number", $group, false, $found));
    check("value $number is found", true, $found);
}
check('it counts hits', $hits + 10, $wp_object_cache->cache_hits);
check('it counts misses', $misses + 10, $wp_object_cache->cache_misses);

wp_cache_set('17', 'seventeen', $group);
check('17 and "17" are the same key', 'seventeen', wp_cache_get(17, $group));
wp_cache_set('k', 'of the default group');
foreach (['', 'default', null, '0'] as $name) {
    check('no group is the group default', 'of the default group', wp_cache_get('k', $name));
}
check('a key belongs to its group', true, $miss('k'));

$wrong = did_action('doing_it_wrong_run');
foreach (['', '  ', null, false, 1.5, []] as $key) {
    check('get refuses an invalid key', false, wp_cache_get($key, $group));
    check('set refuses an invalid key', false, wp_cache_set($key, 1, $group));
    check('add refuses an invalid key', false, wp_cache_add($key, 1, $group));
    check('replace refuses an invalid key', false, wp_cache_replace($key, 1, $group));
    check('delete refuses an invalid key', false, wp_cache_delete($key, $group));
    check('incr refuses an invalid key', false, wp_cache_incr($key, 1, $group));
    check('decr refuses an invalid key', false, wp_cache_decr($key, 1, $group));
}
check('every invalid key is reported', $wrong + 42, did_action('doing_it_wrong_run'));

$object = new ArrayObject(['name' => 'first']);
wp_cache_set('object', $object, $group);
$object['name'] = 'changed';
check('an object is copied when it is set', 'first', wp_cache_get('object', $group)['name']);
wp_cache_get('object', $group)['name'] = 'changed';
check('an object is copied when it is returned', 'first', wp_cache_get('object', $group)['name']);
$object['name'] = 'added';
wp_cache_add('added object', $object, $group);
$object['name'] = 'changed';
check('an object is copied when it is added', 'added', wp_cache_get('added object', $group)['name']);

check('add keeps a new value', true, wp_cache_add('added', 1, $group));
check('add changes no value', [false, 1], [wp_cache_add('added', 2, $group), wp_cache_get('added', $group)]);
wp_cache_set('null', null, $group);
check('null is a value to add', false, wp_cache_add('null', 2, $group));
wp_suspend_cache_addition(true);
check('nothing is added while additions are suspended', [false, true], [wp_cache_add('suspended', 1, $group), $miss('suspended')]);
wp_suspend_cache_addition(false);
check('replace needs a value', [false, true], [wp_cache_replace('absent', 1, $group), $miss('absent')]);
check('replace changes a value', [true, 3], [wp_cache_replace('added', 3, $group), wp_cache_get('added', $group)]);
check('delete needs a value', false, wp_cache_delete('absent', $group));
check('delete removes a value', [true, true, false], [wp_cache_delete('added', $group), $miss('added'), wp_cache_delete('added', $group)]);

check('set_multiple', ['a' => true, 'b' => true], wp_cache_set_multiple(['a' => 1, 'b' => 2], $group));
check('get_multiple', ['a' => 1, 'b' => 2, 'c' => false], wp_cache_get_multiple(['a', 'b', 'c'], $group));
check('add_multiple', ['b' => false, 'c' => true], wp_cache_add_multiple(['b' => 3, 'c' => 3], $group));
check('delete_multiple', ['a' => true, 'd' => false], wp_cache_delete_multiple(['a', 'd'], $group));

check('incr needs a value', false, wp_cache_incr('number', 1, $group));
wp_cache_set('number', 5, $group);
check('incr adds', [6, 9, 9], [wp_cache_incr('number', 1, $group), wp_cache_incr('number', 3, $group), wp_cache_get('number', $group)]);
check('decr subtracts', [8, 5], [wp_cache_decr('number', 1, $group), wp_cache_decr('number', 3, $group)]);
check('decr ends at 0', [0, 0, 2], [wp_cache_decr('number', 9, $group), wp_cache_get('number', $group), wp_cache_incr('number', 2, $group)]);
check('incr by a negative number ends at 0', [0, 0], [wp_cache_incr('number', -9, $group), wp_cache_get('number', $group)]);
wp_cache_set('text', 'many', $group);
check('what is no number counts as 0', [2, 2], [wp_cache_incr('text', 2, $group), wp_cache_get('text', $group)]);
wp_cache_set('text', '7', $group);
check('a numeric string is a number', 9, wp_cache_incr('text', '2', $group));
wp_cache_set('float', 1.5, $group);
check('a float stays one', 0.5, wp_cache_decr('float', 1, $group));

wp_cache_add_non_persistent_groups(['howdah-request']);
wp_cache_set('k', 'here', 'howdah-request');
check('a group of the request has values', ['here', false, 'here'], [wp_cache_get('k', 'howdah-request', true), wp_cache_add('k', 1, 'howdah-request'), wp_cache_get('k', 'howdah-request')]);
wp_cache_set('n', 1, 'howdah-request');
check('a group of the request counts', 3, wp_cache_incr('n', 2, 'howdah-request'));

wp_cache_set('k', 'one', 'howdah-one');
wp_cache_set('k', 'two', 'howdah-two');
check('flush_group removes a group', [true, true, 'two'], [wp_cache_flush_group('howdah-one'), $miss('k', 'howdah-one'), wp_cache_get('k', 'howdah-two')]);

// One process serves the sites of a network; here the flag is set by hand.
$single = $wp_object_cache;
$wp_object_cache = new WP_Object_Cache();
$wp_object_cache->multisite = true;
wp_cache_add_global_groups(['howdah-global']);
wp_cache_switch_to_blog(1);
wp_cache_set('k', 'of site 1', $group);
wp_cache_set('k', 'of all sites', 'howdah-global');
wp_cache_switch_to_blog(2);
check('another site does not have the value', true, $miss('k'));
check('all sites have the values of a global group', 'of all sites', wp_cache_get('k', 'howdah-global'));
check('another site may add the value', true, wp_cache_add('k', 'of site 2', $group));
wp_cache_set('n', 1, $group);
wp_cache_switch_to_blog(1);
check('the first site has its value', 'of site 1', wp_cache_get('k', $group));
check('the first site has no counter', false, wp_cache_incr('n', 1, $group));
wp_cache_delete('k', $group);
wp_cache_switch_to_blog(2);
check('what one site deletes stays in another', 'of site 2', wp_cache_get('k', $group));
wp_cache_reset();
check('a reset keeps global groups', 'of all sites', wp_cache_get('k', 'howdah-global'));
$wp_object_cache = $single;

ob_start();
$wp_object_cache->stats();
check('stats names hits and groups', [true, true], [str_contains(ob_get_contents(), 'Cache Hits:'), str_contains(ob_get_clean(), $group)]);
check('it closes', true, wp_cache_close());

if ($region !== null) {
    $other = new WP_Object_Cache();
    $other->add_non_persistent_groups('howdah-request');

    wp_cache_set('shared', ['a' => 1], $group);
    check('another process gets a value', ['a' => 1], $other->get('shared', $group));
    wp_cache_set('null', null, $group);
    check('another process finds null', [null, true], [$other->get('null', $group, false, $found), $found]);
    wp_cache_set('object', new ArrayObject(['name' => 'first']), $group);
    $other->get('object', $group)['name'] = 'changed';
    check('a shared object is copied when it is returned', 'first', $other->get('object', $group)['name']);
    check('another process gets no value of a request', false, $other->get('k', 'howdah-request'));

    $other->set('shared', 2, $group);
    check('a request keeps its value', ['a' => 1], wp_cache_get('shared', $group));
    check('force reads the shared value', [2, 2], [wp_cache_get('shared', $group, true), wp_cache_get('shared', $group)]);
    $other->delete('shared', $group);
    check('force sees that a value is gone', [2, true, true], [wp_cache_get('shared', $group), $miss('shared', $group, true), $miss('shared')]);

    check('one of two adds', [true, false], [$other->add('lock', 'other', $group), wp_cache_add('lock', 'this', $group)]);
    check('the other one gets its value', 'other', wp_cache_get('lock', $group));
    $other->delete('lock', $group);
    check('a lock that another gave back is free', true, wp_cache_add('lock', 'this', $group));
    check('replace sees a shared value', [true, 'new'], [$other->replace('lock', 'new', $group), wp_cache_get('lock', $group, true)]);

    wp_cache_set('number', 5, $group);
    check('two processes count together', [6, 7, 8], [wp_cache_incr('number', 1, $group), $other->incr('number', 1, $group), wp_cache_incr('number', 1, $group)]);
    check('decr ends at 0 for both', [0, 0, 1], [$other->decr('number', 100, $group), wp_cache_get('number', $group, true), wp_cache_incr('number', 1, $group)]);
    $other->delete('number', $group);
    check('a counter that another deleted is gone', false, wp_cache_incr('number', 1, $group));

    wp_cache_set('negative', 'old', $group);
    check('a negative time keeps nothing', [true, true, true, false], [wp_cache_set('negative', 'new', $group, -1), $miss('negative'), wp_cache_add('negative', 'new', $group, -5), $other->get('negative', $group)]);

    wp_cache_set('refused', 'old', $group);
    check('a value that is too large is refused', false, wp_cache_set('refused', str_repeat('x', $region['size']), $group));
    check('it is good for this request', $region['size'], strlen((string) wp_cache_get('refused', $group)));
    check('no older value is left of it', false, $other->get('refused', $group));
    wp_cache_set('closure', 'old', $group);
    check('what cannot be serialized is refused', false, wp_cache_set('closure', static fn () => 1, $group));
    check('no older value is left of that', [false, false, true], [$other->get('closure', $group), wp_cache_add('closures', static fn () => 1, $group), wp_cache_get('closure', $group) instanceof Closure]);

    $long = str_repeat('long ', 1000);
    wp_cache_set($long . 'a', 'a', $group);
    wp_cache_set($long . 'b', 'b', $long);
    check('long keys and groups differ at the end', ['a', 'b', false], [$other->get($long . 'a', $group), $other->get($long . 'b', $long), $other->get($long . 'b', $group)]);
    check('a group with a long name can be flushed', [true, false], [wp_cache_flush_group($long), (new WP_Object_Cache())->get($long . 'b', $long)]);
    wp_cache_set('b:c', 1, 'a');
    check('a group and a key do not run together', false, $other->get('c', 'a:b'));

    wp_cache_set('k', 'one', 'howdah-one');
    wp_cache_flush_group('');
    wp_cache_flush_group('howdah-one');
    check('flush_group is heard by others, and ends at the group', [false, 'two'], [$other->get('k', 'howdah-one'), $other->get('k', 'howdah-two')]);
    check('flush_runtime leaves the shared values', [true, 'two'], [wp_cache_flush_runtime(), wp_cache_get('k', 'howdah-two')]);
    check('flush_runtime removes those of the request', true, $miss('k', 'howdah-request'));

    wp_cache_set('installing', 'old', $group);
    wp_installing(true);
    check('an installation reads nothing that is shared', false, (new WP_Object_Cache())->get('installing', $group));
    check('an installation has its own values', [true, 'new'], [wp_cache_set('installing', 'new', $group), wp_cache_get('installing', $group)]);
    wp_installing(false);
    check('an installation leaves no old values', false, $other->get('installing', $group));

    wp_cache_set('k', 'of this installation', $group);
    $prefix = $table_prefix;
    $strangers = [];
    foreach (['other_', 'third_', 'fourth_'] as $suffix) {
        $table_prefix = $prefix . $suffix;
        $strangers[] = $stranger = new WP_Object_Cache();
        check('another installation does not see the value', false, $stranger->get('k', $group));
        $stranger->set('k', 'of another installation', $group);
    }
    $table_prefix = $prefix;
    check('flush empties this installation', [true, false], [wp_cache_flush(), (new WP_Object_Cache())->get('k', $group)]);
    // Two tags share a counter in one case of 4096, and then lose their values together. A flush that goes too far
    // takes those of all three.
    $kept = 0;
    foreach (['other_', 'third_', 'fourth_'] as $suffix) {
        $table_prefix = $prefix . $suffix;
        $kept += (new WP_Object_Cache())->get('k', $group) === 'of another installation' ? 1 : 0;
    }
    check('flush leaves other installations their values', true, $kept >= 2);
    foreach ($strangers as $stranger) {
        $stranger->flush();
    }
    $table_prefix = $prefix;

    wp_cache_set('brief', 1, $group, 1);
    wp_cache_add('added brief', 1, $group, 1);
    wp_cache_set('longer', 1, $group, 60);
    wait_until_gone(static fn () => !$miss('added brief', $group, true));
    wp_cache_flush_runtime();
    check('a value expires', [true, true, 1], [$miss('brief'), $miss('added brief'), wp_cache_get('longer', $group)]);
    wp_cache_flush();
}
