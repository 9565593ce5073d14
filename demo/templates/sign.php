<?php use Guestbook\View; ?>
<section class="sign">
  <h1>Sign the book</h1>
  <form method="post" action="/sign" enctype="multipart/form-data">
    <?php $entry = $draft; require __DIR__ . '/fields.php' ?>
    <label>A picture <small>JPEG, PNG or WebP, up to 8 MB</small>
      <input type="file" name="picture" accept="image/jpeg,image/png,image/webp"></label>
    <?php if (isset($problems['picture'])): ?><p class="problem"><?= View::escape($problems['picture']) ?></p><?php endif ?>
    <button>Sign</button>
  </form>
</section>
