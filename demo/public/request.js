// Requests the front page as a visitor without a session, and lists the headers in which the server describes what it
// did.
'use strict';

const SHOWN = /^(howdah-.*|cache-status|x-cache|age|server-timing|content-encoding|content-length)$/;
const rows = document.querySelector('#headers tbody');
const button = document.getElementById('again');

async function request() {
  button.disabled = true;
  const begun = performance.now();
  const row = rows.insertRow(0);
  try {
    // The response must come from the server, and not from the browser's own cache.
    const response = await fetch('/', { credentials: 'omit', cache: 'no-store' });
    await response.text();
    row.insertCell().textContent = response.status;
    row.insertCell().textContent = `${(performance.now() - begun).toFixed(1)} ms`;
    const headers = [...response.headers].filter(([name]) => SHOWN.test(name));
    const cell = row.insertCell();
    for (const [name, value] of headers) {
      const line = cell.appendChild(document.createElement('div'));
      line.appendChild(document.createElement('code')).textContent = `${name}: ${value}`;
    }
  } catch (error) {
    row.insertCell().textContent = error.message;
  }
  while (rows.rows.length > 8) rows.deleteRow(-1);
  button.disabled = false;
}

button.addEventListener('click', request);
request();
