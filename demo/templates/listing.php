<?php
use Guestbook\View;
$link = static fn (int $page): string => '/?' . http_build_query(array_filter(['q' => $search]) + ['page' => $page]);
?>
<p><a class="button" href="/sign">Sign the book</a></p>
<form class="search" method="get" action="/">
  <input type="search" name="q" value="<?= View::escape($search) ?>" placeholder="Search the book" aria-label="Search the book">
  <button>Search</button>
</form>
<p class="count"><?= $total ?> <?= $total === 1 ? 'entry' : 'entries' ?><?= $search === '' ? '' : ' with “' . View::escape($search) . '”' ?></p>
<?php $alone = false; foreach ($entries as $entry) { require __DIR__ . '/entry.php'; } ?>
<?php if ($pages > 1): ?>
<nav class="pages" aria-label="Pages">
  <?php if ($page > 1): ?><a rel="prev" href="<?= View::escape($link($page - 1)) ?>">Newer</a><?php endif ?>
  <span>Page <?= $page ?> of <?= $pages ?></span>
  <?php if ($page < $pages): ?><a rel="next" href="<?= View::escape($link($page + 1)) ?>">Older</a><?php endif ?>
</nav>
<?php endif ?>
