<?php use Guestbook\View; ?>
<section>
  <h1>What happened to a request</h1>
  <p>Your browser requests the front page without cookies, and shows the headers in which the server describes the response.
     The page cache stores a page at its second visit, so the first responses are <code>miss</code>. The following responses
     are <code>hit</code>, until a visitor signs the book.</p>
  <p><button id="again" type="button">Request the front page</button></p>
  <div class="table"><table id="headers"><thead><tr><th>status</th><th>time</th><th>header</th></tr></thead><tbody></tbody></table></div>
  <p>In a terminal, these commands explain the same request:</p>
  <pre>howdah explain <?= View::escape("$site/$option") ?>

howdah cache explain <?= View::escape($site) ?>/</pre>
</section>
<section>
  <h1>What PHP knows about this request</h1>
  <dl>
    <?php foreach ($variables as $name => $value): ?><dt><code><?= View::escape($name) ?></code></dt><dd><?= View::escape((string) $value) ?></dd><?php endforeach ?>
  </dl>
</section>
<script src="/request.js" defer></script>
