// Looks at the pages in the frames around it, from outside.
addEventListener('load', () => {
  const out = {};
  for (const frame of document.querySelectorAll('iframe')) {
    const doc = frame.contentDocument;
    doc.querySelectorAll('details').forEach((details) => { details.open = true; });
    const drawn = [...doc.querySelectorAll('svg')].filter((svg) => svg.getBoundingClientRect().width > 0);
    const texts = (svg) => [...svg.querySelectorAll('text')];
    const box = (element) => element.getBoundingClientRect();
    const outside = (svg) => texts(svg).filter((text) => {
      const a = box(text), b = box(svg);
      return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
    }).map((text) => text.textContent);
    const overlaps = (svg) => {
      const ticks = [...svg.querySelectorAll('.tick, .axis')].map(box);
      let n = 0;
      for (let i = 0; i < ticks.length; i++) for (let j = 0; j < i; j++) {
        const a = ticks[i], b = ticks[j];
        if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom) n++;
      }
      return n;
    };
    const cut = [...doc.querySelectorAll('.scroll, .answers li, .bars td, .ratios td, .figures td, h1, h3, .badges li')]
      .filter((element) => element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0)
      .map((element) => element.textContent);
    out[frame.name] = {
      title: doc.title,
      width: doc.documentElement.scrollWidth,
      figures: doc.querySelectorAll('figure').length,
      drawn: drawn.length,
      plots: doc.querySelectorAll('svg').length,
      outside: drawn.flatMap(outside),
      overlaps: drawn.map(overlaps).reduce((a, b) => a + b, 0),
      smallest: Math.min(...drawn.flatMap(texts).map((text) => box(text).height)),
      loaded: frame.contentWindow.performance.getEntriesByType('resource').length,
      background: getComputedStyle(doc.body).backgroundColor,
      answers: [...doc.querySelectorAll('.answers li')].map((element) => element.innerText),
      rows: doc.querySelectorAll('.figures tr').length,
      active: doc.scripts.length + doc.images.length,
      cut,
    };
  }
  document.getElementById('out').textContent = JSON.stringify(out);
});
