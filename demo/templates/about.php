<?php use Guestbook\View; ?>
<section>
  <h1>What serves this page</h1>
  <dl>
    <?php foreach ($facts as $name => $value): ?><dt><?= View::escape($name) ?></dt><dd><?= View::escape($value) ?></dd><?php endforeach ?>
  </dl>
  <p>The entries are also at <a href="/api/entries">/api/entries</a>, as JSON.</p>
</section>
