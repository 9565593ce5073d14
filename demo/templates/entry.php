<?php use Guestbook\View; ?>
<article>
  <?php if ($entry['picture']): ?>
    <a class="shot" href="/picture/<?= $entry['picture'] ?>"><img src="/<?= $alone ? 'picture' : 'thumb' ?>/<?= $entry['picture'] ?>" alt="Picture by <?= View::escape($entry['author']) ?>" loading="lazy"></a>
  <?php endif ?>
  <div>
    <p class="words"><?= nl2br(View::escape($entry['message'])) ?></p>
    <p class="by">
      <b><?= View::escape($entry['author']) ?></b><?= $entry['place'] === '' ? '' : ', ' . View::escape($entry['place']) ?>
      · <a href="/entry/<?= $entry['id'] ?>"><time datetime="<?= gmdate('c', $entry['written']) ?>"><?= gmdate('j F Y, H:i', $entry['written']) ?></time></a>
      <?= $entry['edited'] ? '· edited' : '' ?>
    </p>
    <?php if ($session->keeper()): ?>
      <form class="keeper" method="post" action="/entry/<?= $entry['id'] ?>/delete">
        <input type="hidden" name="token" value="<?= $session->token() ?>">
        <a href="/entry/<?= $entry['id'] ?>/edit">Edit</a>
        <button class="link">Delete</button>
      </form>
    <?php endif ?>
  </div>
</article>
