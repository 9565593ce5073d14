<?php use Guestbook\View; ?>
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title><?= View::escape($title) ?> · Caravan guestbook</title>
<link rel="stylesheet" href="/style.css">
<link rel="icon" href="/elephant.svg" type="image/svg+xml">
</head>
<body>
<header>
  <a class="brand" href="/"><img src="/elephant.svg" alt="" width="40" height="40"> Caravan guestbook</a>
  <nav>
    <a href="/live">Live</a>
    <a href="/about">About</a>
    <a href="/request">This request</a>
    <?php if ($session?->keeper()): ?>
      <form method="post" action="/logout">
        <input type="hidden" name="token" value="<?= $session->token() ?>">
        <button class="link">Log out <?= View::escape($session->keeper()) ?></button>
      </form>
    <?php else: ?>
      <a href="/login">Log in</a>
    <?php endif ?>
  </nav>
</header>
<main>
<?php if ($notice = $session?->notice()): ?><p class="notice" role="status"><?= View::escape($notice) ?></p><?php endif ?>
<?= $body ?>
</main>
<footer>Served by Howdah, the seat on the elephant.<?php if ($dashboard = getenv('DEMO_DASHBOARD')): ?> <a href="<?= View::escape($dashboard) ?>">The dashboard</a> shows what the server is doing.<?php endif ?></footer>
</body>
</html>
