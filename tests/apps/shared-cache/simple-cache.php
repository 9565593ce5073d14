<?php
// Howdah\SharedCache as PSR-16. PSR_SIMPLE_CACHE names what loads the interfaces.
declare(strict_types=1);

use Howdah\InvalidKey;
use Howdah\SharedCache;
use Psr\SimpleCache\CacheInterface;
use Psr\SimpleCache\InvalidArgumentException;

require __DIR__ . '/checks.php';
require ($_SERVER['PSR_SIMPLE_CACHE'] ?? getenv('PSR_SIMPLE_CACHE')) ?: '/usr/share/php/Psr/SimpleCache/autoload.php';
require dirname(__DIR__, 3) . '/packaging/php/SharedCache.php';

header('Content-Type: text/plain');
$region = howdah_cache_info();
$cache = new SharedCache('howdah-test');
check('it is a PSR-16 cache', true, $cache instanceof CacheInterface);
if ($region === null) {
    check('without a shared cache nothing is kept', [false, 'default', false, true], [$cache->set('k', 1), $cache->get('k', 'default'), $cache->has('k'), $cache->delete('k')]);
    return;
}
check('it starts empty', true, $cache->clear());

foreach ([null, false, true, 0, 1.5, '', "bytes \0\xff", [], ['a' => [1, null]]] as $number => $value) {
    check("value $number is absent", [false, 'default'], [$cache->has("v$number"), $cache->get("v$number", 'default')]);
    check("value $number is set and returned", [true, true, $value], [$cache->set("v$number", $value), $cache->has("v$number"), $cache->get("v$number", 'default')]);
}
check('an absent value is null', null, $cache->get('absent'));
$cache->set('object', new ArrayObject(['name' => 'first']));
$cache->get('object')['name'] = 'changed';
check('an object is a copy', 'first', $cache->get('object')['name']);
check('delete removes a value', [true, false], [$cache->delete('v1'), $cache->has('v1')]);
check('delete needs no value', true, $cache->delete('absent'));

check('setMultiple takes an iterable', true, $cache->setMultiple((static function () { yield 'a' => 1; yield 'b' => null; })()));
check('setMultiple takes numeric keys', [true, 'zero'], [$cache->setMultiple(['0' => 'zero']), $cache->get('0')]);
check('getMultiple', ['a' => 1, 'b' => null, 'c' => 'default'], $cache->getMultiple(new ArrayIterator(['a', 'b', 'c']), 'default'));
check('deleteMultiple', [true, ['a' => null, 'b' => null]], [$cache->deleteMultiple(new ArrayIterator(['a', 'c'])), $cache->getMultiple(['a', 'b'])]);
check('deleteMultiple leaves the rest', [false, true], [$cache->has('a'), $cache->has('b')]);

check('the error is that of PSR-16', true, is_subclass_of(InvalidKey::class, InvalidArgumentException::class));
foreach (['', null, 1, true, [], '{', '}', 'a(', 'a)', 'a/b', 'a\\b', 'a@b', 'a:b', str_repeat('k', 1024)] as $number => $key) {
    foreach (['get', 'delete', 'has'] as $method) {
        check("$method refuses key $number", InvalidKey::class, thrown(fn () => $cache->$method($key)));
    }
    check("set refuses key $number", InvalidKey::class, thrown(fn () => $cache->set($key, 1)));
    check("getMultiple refuses key $number", InvalidKey::class, thrown(fn () => $cache->getMultiple([$key])));
    check("deleteMultiple refuses key $number", InvalidKey::class, thrown(fn () => $cache->deleteMultiple(['b', $key])));
}
check('a refused deleteMultiple deletes nothing', true, $cache->has('b'));
check('a refused setMultiple sets nothing', [InvalidKey::class, false], [thrown(fn () => $cache->setMultiple(['first' => 1, 'a:b' => 2])), $cache->has('first')]);
check('getMultiple refuses what cannot be iterated', InvalidKey::class, thrown(fn () => $cache->getMultiple('key')));
check('setMultiple refuses what cannot be iterated', InvalidKey::class, thrown(fn () => $cache->setMultiple('key')));
check('deleteMultiple refuses what cannot be iterated', InvalidKey::class, thrown(fn () => $cache->deleteMultiple(new stdClass())));
check('set refuses a TTL that is none', InvalidKey::class, thrown(fn () => $cache->set('k', 1, 'soon')));
check('a negative default TTL is refused', InvalidKey::class, thrown(fn () => new SharedCache('', -1)));
check('a long namespace is refused', InvalidKey::class, thrown(fn () => new SharedCache(str_repeat('n', 249))));
check('64 bytes and dots are a key', [true, 1], [$cache->set(str_repeat('Az_.', 16), 1), $cache->get(str_repeat('Az_.', 16))]);

foreach ([0, -1, new DateInterval('PT0S'), DateInterval::createFromDateString('-1 hour')] as $ttl) {
    $cache->set('over', 'old');
    check('a TTL that is over deletes the value', [true, false], [$cache->set('over', 'new', $ttl), $cache->has('over')]);
}
$cache->set('refused', 'old');
check('a value that is too large leaves no older one', [false, false], [$cache->set('refused', str_repeat('x', $region['size'])), $cache->has('refused')]);

$shop = new SharedCache('howdah-shop');
$shop->set('k', 'of the shop');
$cache->set('k', 'of the test');
check('namespaces are apart', ['of the shop', 'of the test'], [$shop->get('k'), $cache->get('k')]);
check('clear empties one namespace', [true, false, true], [$cache->clear(), $cache->has('k'), $shop->has('k')]);
$shop->clear();

$brief = new SharedCache('howdah-test', 1);
$brief->set('default', 1);
$brief->set('own', 1, 60);
$cache->set('seconds', 1, 1);
$cache->set('interval', 1, new DateInterval('PT1S'));
$cache->set('minute', 1, new DateInterval('PT1M'));
$cache->set('unlimited', 1);
check('values are there before they expire', [true, true, true], [$brief->has('default'), $cache->has('seconds'), $cache->has('interval')]);
wait_until_gone(static fn () => $cache->has('interval'));
check('values expire', [false, false, false], [$brief->has('default'), $cache->has('seconds'), $cache->has('interval')]);
check('others stay', [true, true, true], [$brief->has('own'), $cache->has('minute'), $cache->has('unlimited')]);
$cache->clear();
