<?php use Guestbook\View; ?>
<section>
  <h1><?= (int) $status ?></h1>
  <p><?= View::escape($message) ?></p>
  <p><a href="/">Back to the book</a></p>
</section>
