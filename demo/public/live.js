// Shows the events of /live/stream as they arrive.
'use strict';
const bar = document.getElementById('bar');
const list = document.getElementById('events');
const again = document.getElementById('again');

function run() {
  again.hidden = true;
  list.replaceChildren();
  const source = new EventSource('/live/stream');
  source.onmessage = (message) => {
    const event = JSON.parse(message.data);
    bar.value = event.step;
    const line = document.createElement('li');
    line.textContent = `after ${event.ms} ms, from process ${event.pid}`;
    list.append(line);
    if (event.step === event.of) stop();
  };
  source.onerror = stop;
  function stop() {
    source.close();
    again.hidden = false;
  }
}
again.onclick = run;
run();
