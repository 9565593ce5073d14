<section class="sign">
  <h1>Edit entry <?= (int) $entry['id'] ?></h1>
  <form method="post" action="/entry/<?= (int) $entry['id'] ?>/edit">
    <?php require __DIR__ . '/fields.php' ?>
    <button>Save</button>
  </form>
</section>
