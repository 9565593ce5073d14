<section>
  <h1>Live</h1>
  <p>One PHP script sends ten events, half a second apart, and flushes each of them.
     They should appear one by one, and not all at once after five seconds.</p>
  <progress id="bar" max="10" value="0"></progress>
  <ol id="events" aria-live="polite"></ol>
  <button id="again" hidden>Again</button>
  <script src="/live.js"></script>
</section>
