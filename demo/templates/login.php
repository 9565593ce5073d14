<?php use Guestbook\View; ?>
<section class="sign">
  <h1>Log in</h1>
  <?php if ($problem): ?><p class="problem"><?= View::escape($problem) ?></p><?php endif ?>
  <form method="post" action="/login">
    <input type="hidden" name="token" value="<?= $session->token() ?>">
    <label>Name <input name="name" required maxlength="60" autocomplete="username"></label>
    <label>Password <input name="password" type="password" required maxlength="200" autocomplete="current-password"></label>
    <button>Log in</button>
  </form>
  <p>In this demo, the name is <code>keeper</code> and the password is <code>elephant</code>.</p>
</section>
