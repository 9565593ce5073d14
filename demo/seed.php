<?php
/**
 * Prepares the demo's data directory, on the command line: creates the keeper's account,
 * and a first set of entries if the book is empty. A second run adds nothing.
 */
declare(strict_types=1);

require __DIR__ . '/src/autoload.php';

use Guestbook\{Book, Pictures, Store};

if (PHP_SAPI !== 'cli') {
    exit(1);
}
$store = Store::open(getenv('DEMO_DATA') ?: __DIR__ . '/data');
$book = new Book($store);
$book->setKeeper('keeper', 'elephant');
if ($book->list(1)['total'] > 0) {
    return;
}

/** A picture of a sunset over dunes. It is drawn here, so that the demo needs no image file. */
$dunes = imagecreatetruecolor(960, 600);
for ($y = 0; $y < 600; $y++) {
    imageline($dunes, 0, $y, 959, $y, imagecolorallocate($dunes, 250 - intdiv($y, 5), 190 - intdiv($y, 5), 110 + intdiv($y, 12)));
}
imagefilledellipse($dunes, 660, 300, 170, 170, imagecolorallocate($dunes, 255, 236, 180));
foreach ([[380, 70, 178, 108, 60], [450, 50, 150, 84, 46], [520, 35, 112, 60, 36]] as $i => [$base, $height, $r, $g, $b]) {
    $sand = imagecolorallocate($dunes, $r, $g, $b);
    for ($x = 0; $x < 960; $x++) {
        imageline($dunes, $x, $base + (int) ($height * sin($x / (130 + 45 * $i) + $i)), $x, 599, $sand);
    }
}
$file = tempnam(sys_get_temp_dir(), 'dunes');
imagejpeg($dunes, $file, 85);
$picture = (new Pictures($store))->keep($file);
unlink($file);

$guests = [
    ['Ibn Battuta', 'Tangier', 'Travelling leaves you speechless, then turns you into a storyteller. The well is sweet and the bread is warm.'],
    ['Isabella', 'Boroughbridge', "Rode in from the north before the heat.\nThe seat sways less than one would think."],
    ['Zheng He', 'Kunyang', 'Counted the ships twice. All here. 谢谢招待。'],
    ['Gertrude', 'Washington, Durham', 'The maps are wrong beyond the second ridge; I have left a better one with the keeper.'],
    ['Marco', 'Venezia', 'Non ho scritto neppure la metà di ciò che ho visto.'],
    ['Egeria', 'Gallaecia', 'Everyone who keeps this place was kind. I read the whole book while the animals drank.'],
];
$now = time();
$book->add(['author' => 'The keeper', 'place' => 'here', 'message' => 'A new book, since the old one is full. Please sign.'], $picture, $now - 40 * 86400);
for ($i = 0; $i < 24; $i++) {
    [$author, $place, $message] = $guests[$i % 6];
    $book->add(compact('author', 'place', 'message'), $i % 7 === 3 ? $picture : null, $now - (39 - $i) * 86400 + $i * 617);
}
