<?php use Guestbook\View; ?>
<input type="hidden" name="token" value="<?= $session->token() ?>">
<div class="pair">
  <label>Your name <input name="author" required maxlength="60" autocomplete="name" value="<?= View::escape($entry['author'] ?? '') ?>"></label>
  <label>From <input name="place" maxlength="60" value="<?= View::escape($entry['place'] ?? '') ?>"></label>
</div>
<?php if (isset($problems['author'])): ?><p class="problem"><?= View::escape($problems['author']) ?></p><?php endif ?>
<?php if (isset($problems['place'])): ?><p class="problem"><?= View::escape($problems['place']) ?></p><?php endif ?>
<label>Your words <textarea name="message" required maxlength="2000" rows="4"><?= View::escape($entry['message'] ?? '') ?></textarea></label>
<?php if (isset($problems['message'])): ?><p class="problem"><?= View::escape($problems['message']) ?></p><?php endif ?>
