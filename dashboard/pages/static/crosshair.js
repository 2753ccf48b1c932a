// The crosshair: the instant under the pointer, or under the arrow keys, with the values at it,
// in all drawings of a page at once. It lies over the page and moves nothing. Without this file,
// the titles of the drawings have the same values.
(() => {
  'use strict';
  const drawings = '.chart, .lanes, .plot[data-from]';
  const inDrawing = '[data-from] :is(.chart-svg, .lane-svg, .plot-svg)';
  let at = null; // the instant, in milliseconds; null shows no crosshair
  let layer, status;

  const extentOf = (el) => {
    const { from, to, timeZone } = el.closest('[data-from]').dataset;
    return { from: +from, to: +to, zone: timeZone };
  };
  const share = (text) => parseFloat(text) / 100;
  const formats = new Map();
  const instant = (ms, zone) => {
    if (!formats.has(zone)) {
      formats.set(zone, new Intl.DateTimeFormat('sv-SE', {
        timeZone: zone, timeZoneName: 'short', year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit',
      }));
    }
    return formats.get(zone).format(new Date(ms));
  };

  // A column's title would be a second box beside this one, so its text moves to the column.
  const said = (column) => {
    const title = column.querySelector('title');
    if (title) {
      column.dataset.said = title.textContent;
      title.remove();
    }
    return column.dataset.said;
  };
  const readChart = (drawing, place) => {
    const columns = [...drawing.querySelectorAll('.chart-col')];
    columns.forEach(said);
    const i = Math.min(Math.floor(place * columns.length), columns.length - 1);
    if (i < 0) return null;
    const [first, ...rest] = said(columns[i]).split('\n');
    const end = first.indexOf(': ');
    return { head: first.slice(0, end), lines: [first.slice(end + 2), ...rest], place: (i + .5) / columns.length };
  };
  const covers = (el, place) => {
    const from = share(el.getAttribute('x'));
    return place >= from && place <= from + share(el.getAttribute('width'));
  };
  const readLane = (lane, place) => {
    const gap = [...lane.querySelectorAll('.gap')].find((el) => covers(el.querySelector('.gap-area'), place));
    const found = gap || [...lane.querySelectorAll('.tenure')].find((el) => covers(el, place));
    return lane.querySelector('.lane-role').textContent + ': ' + (found ? found.querySelector('title').textContent : 'nothing is recorded');
  };
  const near = .006; // how far from a mark the instant may be to name it
  const readMarks = (drawing, place) => [...drawing.querySelectorAll('a')]
    .filter((mark) => Math.abs(share(mark.querySelector('circle').getAttribute('cx')) - place) < near)
    .map((mark) => mark.querySelector('title').textContent);
  const read = (drawing) => {
    const { from, to, zone } = extentOf(drawing);
    const place = (at - from) / (to - from);
    if (!(place >= 0 && place <= 1)) return null;
    if (drawing.matches('.chart')) return readChart(drawing, place);
    const lines = drawing.matches('.lanes') ? [...drawing.querySelectorAll('.lane')].map((lane) => readLane(lane, place)) : readMarks(drawing, place);
    return { head: instant(at, zone), lines, place };
  };

  const put = (name, left, top) => {
    const el = layer.appendChild(document.createElement('div'));
    el.className = name;
    Object.assign(el.style, { left: left + scrollX + 'px', top: top + scrollY + 'px' });
    return el;
  };
  const show = (drawing) => {
    const found = read(drawing);
    if (!found) return;
    let box;
    for (const svg of drawing.querySelectorAll(':is(.chart-svg, .lane-svg, .plot-svg)')) {
      box = svg.getBoundingClientRect();
      put('cross-line', box.left + found.place * box.width, box.top).style.height = box.height + 'px';
    }
    if (!box) return;
    // Beside the line, on the side with more room; below lanes, which have no room beside it.
    const below = !drawing.matches('.chart');
    const out = put('cross-box', box.left, below ? drawing.getBoundingClientRect().bottom : box.top);
    out.style.maxWidth = box.width + 'px';
    out.append(...[found.head, ...found.lines].map((text, i) => {
      const line = document.createElement(i ? 'span' : 'b');
      line.textContent = text;
      return line;
    }));
    const x = found.place * box.width;
    const width = out.offsetWidth;
    const left = x < box.width / 2 ? x + 10 : x - 10 - width;
    out.style.left = box.left + scrollX + Math.min(Math.max(left, 0), box.width - width) + 'px';
  };
  const draw = () => {
    layer.replaceChildren();
    if (at === null) return;
    for (const drawing of document.querySelectorAll(drawings)) if (drawing.closest('[data-from]')) show(drawing);
  };
  const clear = () => {
    if (at === null) return;
    at = null;
    draw();
  };

  const point = (event) => {
    const svg = event.target.closest(inDrawing);
    if (!svg) {
      if (event.pointerType === 'mouse' && !(document.activeElement || document.body).matches(drawings)) clear();
      return;
    }
    const { from, to } = extentOf(svg);
    const box = svg.getBoundingClientRect();
    at = from + (to - from) * Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    draw();
  };

  // The arrow keys move by one point of a chart, elsewhere by a hundredth.
  const steps = { ArrowLeft: -1, ArrowRight: 1 };
  const press = (event) => {
    if (event.key === 'Escape') clear();
    const drawing = document.activeElement;
    if (!drawing || !drawing.matches(drawings) || event.ctrlKey || event.metaKey || event.altKey) return;
    const { from, to } = extentOf(drawing);
    const step = (to - from) / (drawing.querySelectorAll('.chart-col').length || 100);
    if (event.key === 'Home') at = from + step / 2;
    else if (event.key === 'End') at = to - step / 2;
    else if (steps[event.key]) at = Math.min(Math.max(at === null ? to - step / 2 : at + steps[event.key] * step, from + step / 2), to - step / 2);
    else return;
    event.preventDefault();
    draw();
    const found = read(drawing);
    status.textContent = found ? [found.head, ...found.lines].join(', ') : '';
  };

  // New content comes without what this file adds.
  const renew = () => {
    for (const drawing of document.querySelectorAll(drawings)) if (drawing.closest('[data-from]')) drawing.tabIndex = 0;
    if (at !== null) draw();
  };

  if (!document.querySelector('[sse-swap]')) return;
  layer = document.body.appendChild(document.createElement('div'));
  layer.setAttribute('aria-hidden', 'true');
  status = document.body.appendChild(document.createElement('div'));
  status.className = 'hide';
  status.setAttribute('role', 'status');
  document.addEventListener('pointermove', point, { passive: true });
  document.addEventListener('pointerdown', (event) => { if (event.target.closest(inDrawing)) point(event); else clear(); }, { passive: true });
  document.documentElement.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') clear(); });
  document.addEventListener('focusout', (event) => { if (event.target.matches(drawings) && event.target.isConnected) clear(); });
  document.addEventListener('keydown', press);
  document.addEventListener('htmx:sseMessage', renew);
  addEventListener('resize', clear);
  renew();
})();
